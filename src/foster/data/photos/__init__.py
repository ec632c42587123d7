"""Photos, in the order in which they are used.

- `find`: which photos there are, and of which classes
- `decode`: one photo as an upright RGB image
- `store`: decoded photos of many sizes on a device, in memory or on disk; `stack`: these as a stack of images; `crops`:
  what a network sees of each
- `reading`: the photos of a learner
- `duplicates`: photos that are nearly the same
"""
