"""Photos, in the order in which they are used.

- `find`: which photos there are, and of which classes
- `decode`: one photo as an upright RGB image
- `store`: decoded photos of many sizes on a device, in memory or on disk; `crops`: what a network sees of each
- `stack`: photos as a stack of images, and all photos of a source as a learner reads them
- `duplicates`: photos that are nearly the same
"""
