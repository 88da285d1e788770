"""How a script of a reader's own runs a torch layer."""

from __future__ import annotations

from align.core.layer_scripts import ScriptForms

FORMS = ScriptForms(
    package="torch",
    method="forward",
    layer_at="model.get_submodule({})",
    tensor="torch.from_numpy({})",
    cast="{}.to(torch.{dtype})",
    array="{}.double().numpy()",
    fill="layer.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights.files})",
    cast_layer="layer.to(torch.{dtype})",
    call="with torch.no_grad():\n    output = layer.eval()({})",
)
