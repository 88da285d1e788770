"""How a script of a reader's own runs a MindSpore cell.

Its parameters are filled in their order: what they are called depends on the net around.
"""

from __future__ import annotations

from align.core.layer_scripts import ScriptForms

FORMS = ScriptForms(
    package="mindspore",
    method="construct",
    layer_at="dict(model.cells_and_names())[{}]",
    tensor="mindspore.Tensor({})",
    cast="{}.astype(mindspore.{dtype})",
    array="{}.astype(mindspore.float64).asnumpy()",
    fill="""\
tensors = [*layer.get_parameters(), *(buffer for _, buffer in layer.named_buffers())]
for tensor, name in zip(tensors, weights.files, strict=True):
    tensor.assign_value(mindspore.Tensor(weights[name]).astype(tensor.dtype))""",
    cast_layer="for tensor in tensors:\n    tensor.set_dtype(mindspore.{dtype})",
    call="output = layer.set_train(False)({})",
)
