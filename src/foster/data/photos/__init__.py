"""Photos, in the order in which they are used.

- `find`: which photos there are, and of which classes; `tree`: the same for a dataset in folders
- `decode`: one photo as an upright RGB image; `read`: all photos of a source, as a learner reads them
- `store`: decoded photos of many sizes, in memory or on disk (`cache`); `stack`: batches of them; `crops`: what a
  network sees of each
- `duplicates`: photos that are nearly the same
"""
