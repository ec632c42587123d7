"""Teaching: photos with labels go to the feedback folder; photos that wait for one are shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.exceptions import HTTPException

from foster.data.photos.decode import ImageError, decode_photo
from foster.errors import DataError, FolderError
from foster.serving.answers import FeedbackCounts, NewLabel, PredictedImage, StoredPhoto, WaitingPhoto, WaitingPhotos
from foster.serving.feedback import FeedbackFolder, FullError, PhotosToLabel, preview
from foster.serving.service import RunningService, Service, logger
from foster.serving.uploads import read_form

NUM_CHOICES = 9
"""As many classes as there are keys for them."""

_LABELLED = {
    "type": "object",
    "required": ["file", "label"],
    "properties": {"file": {"type": "string", "format": "binary"}, "label": {"type": "string"}},
}
LABELLED_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _LABELLED}}}
}

router = APIRouter()


async def feedback_of(service: RunningService) -> FeedbackFolder:
    if service.feedback is None:
        raise HTTPException(404, "this server takes no feedback; start it with --feedback FOLDER")
    return service.feedback


async def queue_of(service: RunningService) -> PhotosToLabel:
    if service.to_label is None:
        raise HTTPException(404, "no photos wait for labels; start the server with --to-label FOLDER")
    return service.to_label


Feedback = Annotated[FeedbackFolder, Depends(feedback_of)]
Queue = Annotated[PhotosToLabel, Depends(queue_of)]


async def content_of(photo: str, service: RunningService, queue: Queue) -> bytes:
    content = await service.in_thread(lambda: queue.content(photo))
    if content is None:
        raise HTTPException(404, "there is no such photo")
    return content


Content = Annotated[bytes, Depends(content_of)]


async def _stored(content: bytes, label: str, service: Service, feedback: FeedbackFolder) -> StoredPhoto:
    def store() -> StoredPhoto:
        decode_photo(content, 1)  # what cannot be read teaches nothing
        return feedback.store(content, label)

    with _without_paths():
        answer = await service.in_thread(store)
    if answer.before is None:
        service.metrics.feedback.inc()
    return answer


@router.post("/feedback", openapi_extra=LABELLED_BODY)
async def give_feedback(request: Request, service: RunningService, feedback: Feedback) -> StoredPhoto:
    """Keep a photo with its right class, known or new. The same photo again moves to its new class."""
    service.refuse_if_full()
    form = await read_form(request)
    if len(form.uploads) != 1 or "label" not in form.fields:
        raise HTTPException(400, "send a form with one 'file' and its 'label'")
    return await _stored(form.uploads[0].content, form.fields["label"], service, feedback)


@router.get("/feedback")
async def count_feedback(service: RunningService, feedback: Feedback) -> FeedbackCounts:
    """How many photos of each class wait for the next `foster learn`."""
    counts = await service.in_thread(feedback.counts)
    return FeedbackCounts(num_photos=sum(counts.values()), classes=counts)


@router.delete("/feedback/{photo}", status_code=204)
async def take_back(photo: str, service: RunningService, feedback: Feedback) -> None:
    """Forget a photo again."""
    with _without_paths():
        if not await service.in_thread(lambda: feedback.remove(photo)):
            raise HTTPException(404, "there is no such photo")


@router.get("/to-label")
async def list_to_label(service: RunningService, queue: Queue) -> WaitingPhotos:
    """The photos that wait for a label, those most worth it first where `foster label-next` chose them."""
    everything, left = await service.in_thread(lambda: (queue.all(), queue.left()))
    waiting = [WaitingPhoto(photo=entry.photo, name=entry.name) for entry in left]
    return WaitingPhotos(photos=waiting, num_labelled=len(everything) - len(left))


@router.get("/to-label/{photo}", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
async def show_to_label(content: Content, service: RunningService) -> Response:
    """A photo that waits for a label, as a JPEG of at most 1,280 pixels a side."""
    with _without_paths():
        return Response(await service.in_thread(lambda: preview(content)), media_type="image/jpeg")


@router.get("/to-label/{photo}/prediction")
async def predict_to_label(photo: str, content: Content, service: RunningService) -> PredictedImage:
    """What the bundle takes a waiting photo for."""
    answered = await service.predict([content])
    answer = answered.answers[0]
    if isinstance(answer, ImageError):
        raise HTTPException(422, f"the image cannot be read: {answer}")
    return PredictedImage.of(answer.prediction, photo, NUM_CHOICES)


@router.put("/to-label/{photo}")
async def label_photo(new: NewLabel, content: Content, service: RunningService, feedback: Feedback) -> StoredPhoto:
    """Give a waiting photo its label: a copy of it goes to the feedback folder."""
    return await _stored(content, new.label, service, feedback)


@contextmanager
def _without_paths() -> Iterator[None]:
    """What cannot be done inside becomes an answer that does not tell where this server keeps its files."""
    try:
        yield
    except ImageError as error:
        raise HTTPException(422, f"the image cannot be read: {error}") from None
    except FullError as error:
        raise HTTPException(507, str(error)) from None
    except FolderError as error:
        logger.error("%s", error)
        raise HTTPException(507, "the feedback folder cannot be written; the server's log says why") from None
    except DataError as error:
        raise HTTPException(422, str(error)) from None
