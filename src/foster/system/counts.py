"""Numbers of things in words."""


def counted(number: int, thing: str) -> str:
    """`1 new class`, `3 new classes`, `1,200 images`: the last word has its plural."""
    ending = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{ending}"
