"""LwF: distillation alone, without exemplars."""

from distilling_course import course_of


def test_lwf_keeps_no_exemplars_and_learns_from_new_images_alone() -> None:
    course = course_of("lwf")
    assert course.method.memory.num_images == 0
    seen = [sorted(set(trained.phase.data.labels.tolist())) for trained in course.phases]
    assert seen == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
