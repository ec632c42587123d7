"""Photos with labels, and photos that wait for one."""

import asyncio
from pathlib import Path

from servers import client_of, photo, service_of


def queue(folder: Path, num_photos: int) -> Path:
    folder.mkdir()
    for k in range(num_photos):
        (folder / f"{k + 1}-photo.png").write_bytes(photo(k))
    return folder


def test_a_photo_is_shown_predicted_labelled_and_taken_back(small_bundle: Path, tmp_path: Path) -> None:
    folder, feedback = queue(tmp_path / "queue", 2), tmp_path / "feedback"

    async def check() -> None:
        async with client_of(service_of(small_bundle, feedback=feedback, to_label=folder)) as client:
            listed = (await client.get("/to-label")).json()
            assert [entry["name"] for entry in listed["photos"]] == ["1-photo.png", "2-photo.png"]
            path = f"/to-label/{listed['photos'][0]['photo']}"
            shown = await client.get(path)
            assert shown.headers["content-type"] == "image/jpeg"
            assert (await client.get(f"{path}/prediction")).json()["top"]
            stored = await client.put(path, json={"label": "owl"})
            assert stored.json() == {"photo": listed["photos"][0]["photo"], "label": "owl", "before": None}
            assert (feedback / "owl" / stored.json()["photo"]).read_bytes() == photo(0)
            again = (await client.get("/to-label")).json()
            assert (len(again["photos"]), again["num_labelled"]) == (1, 1)
            assert (await client.get("/info")).json()["num_to_label"] == 1
            assert (await client.delete(f"/feedback/{stored.json()['photo']}")).status_code == 204
            assert len((await client.get("/to-label")).json()["photos"]) == 2
            assert (await client.put(path, json={"label": "../x"})).status_code == 422
            assert (await client.get("/to-label/nothing")).status_code == 404

    asyncio.run(check())
    assert sorted(path.name for path in folder.iterdir()) == ["1-photo.png", "2-photo.png"], "the queue is not changed"
