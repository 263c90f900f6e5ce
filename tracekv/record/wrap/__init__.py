"""How each seam is taken on a live object, one file per kind of object."""
