"""Contractions of two dense tensors, in three index orders that the rank of the result tells apart."""


def reference(inputs, sizes, scalars, xp):
    """The standard's tensordot in float64: the free modes of X, then those of Y; then into the order of Z."""
    summed, order = {
        3: (((1,), (0,)), (1, 0, 2)),  # X[b,d,a] Y[d,c]: (b,a,c) to (a,b,c)
        4: (((1, 3), (3, 1)), (0, 1, 3, 2)),  # X[a,e,b,f] Y[d,f,c,e]: (a,b,d,c) to (a,b,c,d)
        6: (((2,), (0,)), (2, 4, 5, 0, 1, 3)),  # X[d,e,g,a] Y[g,f,b,c]: (d,e,a,f,b,c) to (a,b,c,d,e,f)
    }[sizes["rank"]]
    return {"z": xp.permute_dims(xp.tensordot(inputs["x"], inputs["y"], axes=summed), order)}


def flops(sizes):
    """One multiplication and one addition for each value of all modes."""
    count = 2.0
    for mode in "abcdefg":
        count *= sizes.get(mode, 1)
    return count
