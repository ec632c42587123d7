"""Photos: where they lie, how they are decoded, and how they become images of one size.

- which there are, and of which classes: `find`, `sources` (as a learner is given them), `trees` (as a run reads them)
- one photo, upright and at the wanted size: `headers` and `decode` (any format), `pixels` (its file), `resize`
- many at once, all of one size: `read`
- many that keep their sizes: `encoded` lists them; a `darkroom` decodes them, with the `cache` on disk, and says where
  their pixels are kept; a `store` has those of one list; an `album` is some photos of stores, and `crops` cuts what a
  network sees out of them; `developing` does all this for a learner
- which are nearly the same: `likeness`
"""
