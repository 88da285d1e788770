"""Images with lists of boxes and labels."""

import numpy as np

SIZE, IMAGES, CLASSES = 64, 3, 5


def inputs():
    """Inputs of the forward pass."""
    rng = np.random.default_rng(8)
    return {"images": rng.normal(0, 1, (2, 3, SIZE, SIZE)).astype(np.float32)}


def batch(number=0):
    """One training batch: every image has another number of boxes, drawn as coloured rectangles."""
    rng = np.random.default_rng(300 + number)
    images = rng.normal(0, 0.5, (IMAGES, 3, SIZE, SIZE)).astype(np.float32)
    targets = []
    for image, count in zip(images, rng.permutation([1, 3, 6]), strict=True):
        size = rng.uniform(10, 50, (count, 2))
        corner = rng.uniform(0, 1, (count, 2)) * (SIZE - size)
        boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
        labels = rng.integers(0, CLASSES, count).astype(np.int32)
        for (x1, y1, x2, y2), label in zip(boxes.astype(int), labels, strict=True):
            image[label % 3, y1:y2, x1:x2] += 0.4 * (label + 1)
        targets.append({"boxes": boxes, "labels": labels})
    return {"images": images, "targets": targets}
