"""Photos: `find` lists them and their classes, `decode` makes one an upright RGB image, `store` reads and keeps many.

`crops` cuts what a network sees out of photos of many sizes; `duplicates` finds photos that are nearly the same.
"""
