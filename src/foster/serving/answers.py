"""The shapes of all answers, which are also what `/openapi.json` tells."""

from typing import Annotated

from pydantic import BaseModel, Field

from foster.learner.familiarity import Unknown
from foster.learner.reports import Prediction
from foster.serving.served import Served

Share = Annotated[float, Field(ge=0, le=1)]


class BundleName(BaseModel):
    """The bundle that answered: its folder's name, and the start of the hash of its weights."""

    name: str
    version: str

    @classmethod
    def of(cls, served: Served) -> "BundleName":
        return cls(name=served.name, version=served.version)


class Candidate(BaseModel):
    label: str
    probability: Share


class PredictedImage(BaseModel):
    """What one image shows, or why it could not be read."""

    image: str = Field(description="The name that the sender gave the file.")
    label: str | None = Field(default=None, description="The best class, or null with an error.")
    confidence: Share | None = Field(default=None, description="The calibrated probability of the best class.")
    is_unknown: bool = False
    top: list[Candidate] = []
    error: str | None = None

    @classmethod
    def of(cls, prediction: Prediction, name: str, num_classes: int) -> "PredictedImage":
        facts = prediction.record()
        return cls.model_validate({**facts, "image": name, "top": facts["top"][:num_classes]})


class Timing(BaseModel):
    """Milliseconds: until the images were decoded, waiting for the device, on the device, and in all."""

    decode: float
    wait: float
    compute: float
    total: float
    batch_size: int = Field(description="How many images were computed together, those of other requests included.")


class Predicted(BaseModel):
    bundle: BundleName
    predictions: list[PredictedImage]
    milliseconds: Timing


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
    is_calibrated: bool = Field(description="Whether confidence was compared with how often it is right.")
    unknown_below: Unknown = Field(
        description="Below which confidence a photo is unknown; auto: where it is stranger than what was learned."
    )
    takes_feedback: bool
    num_to_label: int = Field(description="How many photos wait for a label.")
    num_swaps: int = Field(description="How often another bundle took over since the start.")
    problem: str | None = Field(description="Why another bundle than the promoted one answers.")
    limits: Limits


class Classes(BaseModel):
    bundle: BundleName
    classes: list[str] = Field(description="In the order of their ids.")


class Health(BaseModel):
    status: str


class StoredPhoto(BaseModel):
    photo: str = Field(description="The photo's name, to remove it again.")
    label: str
    before: str | None = Field(description="The class that it had before, where it was stored already.")


class FeedbackCounts(BaseModel):
    num_photos: int
    classes: dict[str, int]


class WaitingPhoto(BaseModel):
    photo: str
    name: str


class WaitingPhotos(BaseModel):
    photos: list[WaitingPhoto]
    num_labelled: int


class NewLabel(BaseModel):
    label: str = Field(max_length=1000)


class Session(BaseModel):
    token: str = Field(max_length=4096)


class Problem(BaseModel):
    """What every answer that is no success holds: one line that says why."""

    error: str
