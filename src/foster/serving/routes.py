"""Asking: predictions, heat maps, and what there is to know about the bundle and the server."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from foster.data.photos.decode import ImageError
from foster.serving.answers import BundleName, Classes, Health, Info, Limits, Predicted, PredictedImage, Timing
from foster.serving.batching import Answer
from foster.serving.served import MOST_CLASSES
from foster.serving.service import Answered, RunningService
from foster.serving.uploads import MOST_FILES, read_images
from foster.version import __version__

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


@router.post("/predict", openapi_extra=IMAGE_BODY)
async def predict(request: Request, service: RunningService, top: Top = 5) -> Predicted:
    """What images show. One that cannot be read has an `error`; where none can, the status is 422."""
    service.refuse_if_full()
    uploads = await read_images(request)
    answered = await service.predict([upload.content for upload in uploads])
    images = [
        PredictedImage(image=upload.name, error=str(answer))
        if isinstance(answer, ImageError)
        else PredictedImage.of(answer.prediction, upload.name, top)
        for upload, answer in zip(uploads, answered.answers, strict=True)
    ]
    if all(image.error for image in images):
        reasons = "; ".join(f"{image.image}: {image.error}" for image in images[:3])
        raise HTTPException(422, f"no image can be read: {reasons}")
    return Predicted(bundle=BundleName.of(answered.served), predictions=images, milliseconds=_timing(answered))


@router.post(
    "/explain", openapi_extra=IMAGE_BODY, response_class=Response, responses={200: {"content": {"image/png": {}}}}
)
async def explain(request: Request, service: RunningService, label: Label = None) -> Response:
    """Where an image speaks for a class: a translucent PNG of the picture's shape (Grad-CAM)."""
    service.refuse_if_full()
    uploads = await read_images(request)
    try:
        served, shown, png = await service.heat_map(uploads[0].content, label)
    except ImageError as error:
        raise HTTPException(422, f"the image cannot be read: {error}") from None
    except KeyError:
        raise HTTPException(404, "there is no such class") from None
    headers = {"x-foster-label": quote(shown), "x-foster-bundle": f"{quote(served.name)} {served.version}"}
    return Response(png, media_type="image/png", headers=headers)


@router.get("/classes")
async def classes(service: RunningService) -> Classes:
    """All classes of the bundle in use."""
    served = service.current.now
    return Classes(bundle=BundleName.of(served), classes=list(served.learner.class_names))


@router.get("/info")
async def info(service: RunningService) -> Info:
    """The bundle in use, and what the server takes."""
    served = service.current.now
    knowledge = served.learner.knowledge
    assert knowledge is not None, "what is served was loaded"
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
    """Whether the server can answer; needs no token."""
    if not service.is_alive:
        raise HTTPException(503, "no answers can be computed")
    return Health(status="ok")


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: RunningService) -> PlainTextResponse:
    """Counters and histograms in Prometheus' text format."""
    return PlainTextResponse(service.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _timing(answered: Answered) -> Timing:
    answers = [answer for answer in answered.answers if isinstance(answer, Answer)]
    return Timing(
        decode=round(1000 * answered.decode_seconds, 2),
        wait=round(1000 * max(answer.wait_seconds for answer in answers), 2),
        compute=round(1000 * max(answer.compute_seconds for answer in answers), 2),
        total=round(1000 * answered.total_seconds, 2),
        batch_size=max(answer.batch_size for answer in answers),
    )
