"""All routes and the schemas of their answers, which `/openapi.json` describes."""

from dataclasses import replace
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Query, Request, Response, UploadFile
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from foster.data.photos.decode import ImageError, decode_photo
from foster.errors import DataError
from foster.learner.familiarity import Unknown
from foster.learner.prediction import Prediction
from foster.serving.feedback import FeedbackFolder, PhotosToLabel, PhotoToLabel, StoredPhoto, preview
from foster.serving.served import MOST_CLASSES, Served
from foster.serving.service import RunningService, Service
from foster.version import __version__

MOST_FILES = 64
MOST_FIELDS = 8
NUM_CHOICES = 9
"""Classes that are offered: one for each of the keys 1 to 9."""

Top = Annotated[int, Query(ge=1, le=MOST_CLASSES, description="How many classes to list for each image.")]
Label = Annotated[str | None, Query(max_length=1000, description="The class to explain; by default the best one.")]

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FILES = {"schema": {"type": "object", "properties": {"file": {"type": "array", "items": _BINARY["schema"]}}}}
IMAGE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The bytes of one image file, or a form with one or several files under any names.",
        "content": {"application/octet-stream": _BINARY, "multipart/form-data": _FILES},
    }
}

router = APIRouter()


class BundleName(BaseModel):
    """The bundle that answered: its folder's name, and the start of the hash of its `bundle.json`."""

    name: str
    version: str

    @classmethod
    def of(cls, served: Served) -> "BundleName":
        return cls(name=served.name, version=served.version)


class Predicted(BaseModel):
    bundle: BundleName
    predictions: list[Prediction]


class Limits(BaseModel):
    bytes: int = Field(description="The largest body of a request.")
    files: int = Field(description="The most files of a request.")


class Info(BaseModel):
    foster: str
    bundle: BundleName
    num_classes: int
    method: str
    backbone: str
    image_size: tuple[int, int] = Field(description="Height and width that the network sees.")
    device: str
    is_calibrated: bool = Field(description="Whether the confidence was calibrated on held-out photos.")
    unknown_below: Unknown = Field(
        description="A photo is unknown below this confidence; auto: if it differs too much from the known classes."
    )
    takes_feedback: bool
    num_to_label: int = Field(description="How many photos wait for a label.")
    num_swaps: int = Field(description="How often the bundle was exchanged since the start.")
    problem: str | None = Field(description="Why the promoted bundle is not in use.")
    limits: Limits


class Classes(BaseModel):
    bundle: BundleName
    classes: list[str] = Field(description="In the order of their ids.")


class Health(BaseModel):
    status: str


class FeedbackCounts(BaseModel):
    num_photos: int
    classes: dict[str, int]


class WaitingPhotos(BaseModel):
    photos: list[PhotoToLabel]


class NewLabel(BaseModel):
    label: str = Field(max_length=1000)


class Upload(NamedTuple):
    """The name and the content of a file."""

    name: str
    content: bytes


async def read_images(request: Request) -> list[Upload]:
    """The images of a request, at least one: its body, or all files of a form. Raises HTTPException."""
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        async with request.form(max_files=MOST_FILES, max_fields=MOST_FIELDS) as form:
            files = [value for _, value in form.multi_items() if not isinstance(value, str)]
            uploads = [Upload(file.filename or "image", await file.read()) for file in files]
    else:
        content = await request.body()
        uploads = [Upload("image", content)] if content else []
    if not uploads:
        raise HTTPException(400, "no image was sent: send its bytes as the body, or a form with files")
    return uploads


@router.post("/predict", openapi_extra=IMAGE_BODY)
async def predict(request: Request, service: RunningService, top: Top = 5) -> Predicted:
    """Classify images. An image that cannot be read has an `error`; if none can be read, the status is 422."""
    service.refuse_if_full()
    uploads = await read_images(request)
    served, answers = await service.predict([upload.content for upload in uploads])
    images = [_shortened(answer, upload.name, top) for upload, answer in zip(uploads, answers, strict=True)]
    if all(image.error for image in images):
        reasons = "; ".join(f"{image.name}: {image.error}" for image in images[:3])
        raise HTTPException(422, f"no image can be read: {reasons}")
    return Predicted(bundle=BundleName.of(served), predictions=images)


@router.post(
    "/explain", openapi_extra=IMAGE_BODY, response_class=Response, responses={200: {"content": {"image/png": {}}}}
)
async def explain(request: Request, service: RunningService, label: Label = None) -> Response:
    """A heat map of the evidence for a class (Grad-CAM): a translucent PNG to lay over the picture."""
    service.refuse_if_full()
    uploads = await read_images(request)
    served, shown, png = await service.heat_map(uploads[0].content, label)
    headers = {"x-foster-label": quote(shown), "x-foster-bundle": f"{quote(served.name)} {served.version}"}
    return Response(png, media_type="image/png", headers=headers)


@router.get("/classes")
async def classes(service: RunningService) -> Classes:
    """All classes of the bundle in use."""
    served = service.current.now
    return Classes(bundle=BundleName.of(served), classes=list(served.learner.class_names))


@router.get("/info")
async def info(service: RunningService) -> Info:
    """The bundle in use, and the limits of the server."""
    served = service.current.now
    knowledge = served.learner.known
    to_label = service.to_label
    num_to_label = len(await service.in_thread(to_label.left)) if to_label else 0
    return Info(
        foster=__version__,
        bundle=BundleName.of(served),
        num_classes=knowledge.num_classes,
        method=knowledge.method,
        backbone=knowledge.backbone,
        image_size=knowledge.preprocessing.size,
        device=served.learner.classifier().device.type,
        is_calibrated=knowledge.num_calibration_images > 0,
        unknown_below=served.unknown_below,
        takes_feedback=service.feedback is not None,
        num_to_label=num_to_label,
        num_swaps=service.current.num_swaps,
        problem=service.current.problem,
        limits=Limits(bytes=service.options.max_bytes, files=MOST_FILES),
    )


@router.get("/health")
async def health(service: RunningService) -> Health:
    """Whether answers can be computed; needs no token."""
    if not service.is_alive:
        raise HTTPException(503, "answers cannot be computed")
    return Health(status="ok")


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: RunningService) -> PlainTextResponse:
    """Counters and histograms in Prometheus' text format."""
    return PlainTextResponse(service.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


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
        decode_photo(content, 1)  # a photo that cannot be read cannot be learned
        return feedback.store(content, label)

    try:
        answer = await service.in_thread(store)
    except ImageError:
        raise
    except DataError as error:  # the label cannot be the name of a class
        raise HTTPException(422, str(error)) from None
    if answer.before is None:
        service.metrics.feedback.inc()
    return answer


@router.post("/feedback")
async def give_feedback(
    file: UploadFile, label: Annotated[str, Form()], service: RunningService, feedback: Feedback
) -> StoredPhoto:
    """Store a photo with its right class, known or new. If it is stored already, it moves to this class."""
    return await _stored(await file.read(), label, service, feedback)


@router.get("/feedback")
async def count_feedback(service: RunningService, feedback: Feedback) -> FeedbackCounts:
    """How many photos of each class wait for the next `foster learn`."""
    counts = {label: len(photos) for label, photos in (await service.in_thread(feedback.photos)).items()}
    return FeedbackCounts(num_photos=sum(counts.values()), classes=counts)


@router.delete("/feedback/{photo}", status_code=204)
async def take_back(photo: str, service: RunningService, feedback: Feedback) -> None:
    """Remove a photo from the feedback folder."""
    if not await service.in_thread(lambda: feedback.remove(photo)):
        raise HTTPException(404, "there is no such photo")


@router.get("/to-label")
async def list_to_label(service: RunningService, queue: Queue) -> WaitingPhotos:
    """The photos that wait for a label, in the order of their names, which is that of `foster label-next --copy`."""
    return WaitingPhotos(photos=await service.in_thread(queue.left))


@router.get("/to-label/{photo}", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
async def show_to_label(content: Content, service: RunningService) -> Response:
    """A photo that waits for a label, as a JPEG of at most 1,280 pixels a side."""
    return Response(await service.in_thread(lambda: preview(content)), media_type="image/jpeg")


@router.get("/to-label/{photo}/prediction")
async def predict_to_label(photo: str, content: Content, service: RunningService) -> Prediction:
    """The prediction for a waiting photo."""
    _, (answer,) = await service.predict([content])
    if answer.error is not None:
        raise ImageError(answer.error)
    return _shortened(answer, photo, NUM_CHOICES)


@router.put("/to-label/{photo}")
async def label_photo(new: NewLabel, content: Content, service: RunningService, feedback: Feedback) -> StoredPhoto:
    """Give a waiting photo its label: a copy of it is stored in the feedback folder."""
    return await _stored(content, new.label, service, feedback)


def _shortened(prediction: Prediction, name: str, num_classes: int) -> Prediction:
    """The prediction under another name, with at most `num_classes` classes."""
    return replace(prediction, name=name, top=prediction.top[:num_classes])
