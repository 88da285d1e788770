"""Programs with names and defaults of their own: what two of them spell otherwise is equal, what differs is named."""

from __future__ import annotations

from typing import Any

import pytest

from align.hyperparameters.compare_hyperparameters import compare_hyperparameters

SWIN = """_C = CN()
_C.DATA = CN()
_C.DATA.BATCH_SIZE = 128
_C.TRAIN = CN()
_C.TRAIN.BASE_LR = 1e-3
_C.TRAIN.WARMUP_LR = 0.0
_C.TRAIN.LR_SCHEDULER = CN()
_C.TRAIN.LR_SCHEDULER.NAME = 'cosine'
_C.TRAIN.LR_SCHEDULER.DECAY_EPOCHS = 30
_C.AUG = CN()
_C.AUG.AUTO_AUGMENT = 'rand-m9-mstd0.5-inc1'
_C.SEED = 42
"""
MINDCV = """epoch_size: 300
image_resize: 224
ckpt_save_policy: top_k
batch_size: 128
lr: 0.001
min_lr: 5.0e-6
warmup_epochs: 20
warmup_factor: 0
decay_epochs: 280
opt: adamw
eps: 1.0e-8
weight_decay: 0.05
clip_grad: True
clip_value: 5.0
auto_augment: randaug-m9-mstd0.5-inc1
re_prob: 0.25
mixup: 0.8
cutmix: 1.0
label_smoothing: 0.1
interpolation: bicubic
amp_level: O2
"""
OCR = """Global: {epoch_num: 10, save_model_dir: a}
Architecture: {algorithm: DB}
Optimizer: {name: Momentum, momentum: 0.9, lr: {learning_rate: 0.01}, regularizer: {name: L2, factor: 0.0001}}
Train:
  dataset: {transforms: [{DecodeImage: {img_mode: BGR}}]}
  loader: {batch_size_per_card: 16, drop_last: False}
"""
MINDOCR = """system: {distribute: False, amp_level: O0}
scheduler: {scheduler: constant, lr: 0.01, num_epochs: 10, warmup_epochs: 0}
optimizer: {opt: SGD, momentum: 0.9, weight_decay: 0.0001}
train:
  ckpt_save_dir: b
  gradient_accumulation_steps: 2
  dataset: {transform_pipeline: [{DecodeImage: {img_mode: BGR}}]}
  loader: {batch_size: 8, drop_remainder: False}
"""


def test_swin_and_mindcv_set_to_the_same_are_equal(settings: Any) -> None:
    result = settings.compare(("config.py", SWIN), ("b.yaml", MINDCV))
    assert (result.reference.trainer, result.candidate.trainer) == ("Swin Transformer", "MindCV")
    assert result.differences == ()
    assert {"learning_rate", "clip_norm", "auto_augment", "epsilon"} <= {one.parameter for one in result.equal}


def test_what_swin_and_mindcv_do_otherwise_is_named(settings: Any) -> None:
    other = MINDCV.replace("clip_grad: True", "clip_grad: False").replace("epoch_size: 300", "epoch_size: 600")
    found = settings.differing(("config.py", SWIN), ("b.yaml", other))
    assert found == {"max_steps": ("300 epochs", "600 epochs"), "clip_norm": ("5", "0")}


def test_paddleocr_and_mindocr(settings: Any) -> None:
    result = settings.compare(("a.yml", OCR), ("b.yaml", MINDOCR))
    assert (result.reference.trainer, result.candidate.trainer) == ("PaddleOCR", "MindOCR")
    assert result.differences == ()
    other = MINDOCR.replace("BGR", "RGB").replace(", warmup_epochs: 0", "").replace("steps: 2", "steps: 1")
    found = settings.differing(("a.yml", OCR), ("b.yaml", other))
    assert found.keys() == {"warmup_steps", "global_batch", "img_mode"}


def test_defaults_of_timm_are_not_those_of_convnext(settings: Any) -> None:
    options = ["update_freq", "model_ema_eval", "head_init_scale", "nb_classes", "dist_eval", "reprob", "aa", "remode"]
    code = "".join(f"p.add_argument('--{name}', default=1)\n" for name in options)
    code += "p.add_argument('--warmup_steps', default=-1)\np.add_argument('--use_amp', default=False)\n"
    result = settings.compare(("main.py", code), ("b.yaml", "precision: fp32\nwarmup_epochs: 20\nwarmup_lr: 0\n"))
    assert result.reference.trainer == "ConvNeXt"
    assert result.differences == ()
    assert {"warmup_steps", "warmup_start", "precision"} <= {one.parameter for one in result.equal}


def test_mindone_is_not_taken_for_mindcv(settings: Any) -> None:
    text = "start_learning_rate: 1e-4\ntrain_batch_size: 64\noptim_eps: 1.e-6\nckpt_max_keep: 3\nclip_grad: True\n"
    text += "dataset_sink_mode: False\nnum_parallel_workers: 4\ndrop_remainder: True\n"
    result = settings.compare(("a.yaml", text), ("b.yaml", "lr: 1e-4\nbatch_size: 32\neps: 1e-6\nmax_grad_norm: 0.5\n"))
    assert result.reference.trainer == "MindOne"
    found = {one.parameter: (one.reference.value, one.candidate.value) for one in result.differences}
    assert found == {"global_batch": ("64 a device", "32 a device"), "clip_norm": ("1", "0.5")}


def test_settings_in_the_section_of_the_chosen_optimizer_count(settings: Any) -> None:
    text = "optimizer: Lamb\nLamb: {learning_rate: 0.0003, eps: 1e-8}\nMomentum: {learning_rate: 0.1}\n"
    found = settings.differing(("a.yaml", text), ("b.yaml", "optimizer: lamb\nlr: 0.0004\neps: 1e-8\n"))
    assert found == {"learning_rate": ("0.0003", "0.0004")}


def test_devices_of_a_launcher_count_before_one_that_is_only_the_default(settings: Any) -> None:
    code = "p.add_argument('--world_size', default=1)\np.add_argument('--batch_size', default=4)\n"
    script = settings.file("run.sh", "torchrun --nproc_per_node=8 main.py --lr 0.1\n")
    both = f"{settings.file('main.py', code)},{script}"
    found = settings.compare(("a.yaml", "global_batch_size: 32\n"), ("b.yaml", "global_batch_size: 16\n"))
    assert found.differences
    from align.hyperparameters.compare_hyperparameters import compare_hyperparameters

    result = compare_hyperparameters(both, settings.file("c.yaml", "global_batch_size: 32\n"))
    assert [(one.parameter, one.reference.value) for one in result.equal] == [("global_batch", "32")]


@pytest.mark.parametrize("name", ["batch_size", "batch-size"])
def test_the_batch_of_yolo_is_that_of_all_devices(settings: Any, name: str) -> None:
    torch = f"lr0: 0.01\nlrf: 0.1\nanchor_t: 4.0\n{name}: 16\n"
    port = "optimizer: {lr_init: 0.01, warmup_bias_lr: 0.1, end_factor: 0.1}\nloss: {anchor_t: 4.0}\n"
    port += "per_batch_size: 16\nworld_size: 8\n"
    assert settings.differing(("a.yaml", torch), ("b.yaml", port))["global_batch"] == ("16", "128")


def test_accumulation_shows_where_one_side_gives_no_batch(settings: Any) -> None:
    found = settings.differing(("a.yaml", "accum_grad: 4\nbatch_size: 16\n"), ("b.yaml", "accum_grad: 1\n"))
    assert found == {"accumulation": ("4", "1")}


def test_two_paths_under_a_name_that_no_table_knows_are_not_compared(settings: Any) -> None:
    result = settings.compare(("a.yaml", "lexicon: data/words.txt\n"), ("b.yaml", "lexicon: /tmp/words.txt\n"))
    assert [one.parameter for one in result.unsettled] == ["lexicon"]
    assert result.differences == ()


def test_a_word_behind_a_number_belongs_to_the_program(settings: Any) -> None:
    found = settings.read("a.sh", "tune run --nproc_per_node 2 full_finetune --config qwen --betas 0.9 0.95\n")
    assert (found["nproc_per_node"], found["betas"]) == ("2", ("0.9", "0.95"))
    mixed = settings.read("b.sh", "python t.py --data-path 0.3 A 0.7 B\n")
    assert mixed == {"data-path": ("0.3", "A", "0.7", "B")}


def program(names: str, extra: str = "") -> str:
    """A script that defines these options, and some more as scripts do."""
    more = [f"other_{number}" for number in range(20)]
    return extra + "".join(f"p.add_argument('--{name}', default=None)\n" for name in [*names.split(), *more])


def test_a_program_without_an_option_has_no_default_of_it(settings: Any) -> None:
    signs = "sched smoothing reprob aa remode model_ema"
    port = ("b.yaml", "precision: fp16\n")
    with_option = settings.compare(("main.py", program(f"{signs} amp")), port)
    without = settings.compare(("main.py", program(signs)), port)
    assert with_option.reference.trainer == without.reference.trainer == "timm"
    assert [one.parameter for one in with_option.differences] == ["precision"]
    assert [one.parameter for one in without.one_sided if one.parameter == "precision"] == ["precision"]
    assert without.differences == ()


def test_what_a_program_implies_holds_without_an_option(settings: Any) -> None:
    code = program("batch-size", "p.add_argument('--lr0', default=0.01)\np.add_argument('--anchor_t', default=4)\n")
    result = settings.compare(("train.py", code), ("b.yaml", "lr0: 0.01\nanchor_t: 4\noptimizer: adam\n"))
    assert [(one.parameter, one.reference.origin) for one in result.differences] == [("optimizer", "default")]


def test_epochs_that_a_cosine_of_timm_does_not_read_are_no_difference(settings: Any) -> None:
    timm = "python train.py --sched cosine --smoothing 0.1 --reprob 0.2 --decay-epochs 30\n"
    port = "epoch_size: 300\nimage_resize: 224\nckpt_save_policy: top_k\ndecay_epochs: 295\n"
    assert "lr_decay_epochs" not in settings.differing(("a.sh", timm), ("b.yaml", port))


def test_a_cosine_that_ends_where_it_begins_is_constant(settings: Any) -> None:
    cosine = "lr: 1e-6\nmin_lr: 1.0e-6\nscheduler: cosine\n"
    assert settings.differing(("a.yaml", cosine), ("b.yaml", "lr: 1e-6\nscheduler: constant\n")) == {}
    other = settings.differing(("a.yaml", cosine.replace("1.0e-6", "0")), ("b.yaml", "lr: 1e-6\nscheduler: constant\n"))
    assert other.keys() == {"lr_schedule"}


def test_a_schedule_that_no_table_knows_hides_nothing(settings: Any) -> None:
    first, second = "scheduler: my_own\nmin_lr: 1e-6\n", "scheduler: my_own\nmin_lr: 1e-5\n"
    assert settings.differing(("a.yaml", first), ("b.yaml", second)).keys() == {"min_learning_rate"}
    constant = settings.compare(("a.yaml", first.replace("my_own", "constant")), ("b.yaml", second))
    assert [one.parameter for one in constant.unsettled] == ["lr_schedule"]


DETECTRON2 = """MODEL: {FPN: {IN_FEATURES: [res2]}, RESNETS: {OUT_FEATURES: [res2]}, RPN: {POST_NMS_TOPK_TRAIN: 1000}}
SOLVER: {IMS_PER_BATCH: 16, BASE_LR: 0.02, STEPS: (60000, 80000), MAX_ITER: 90000}
SEED: -1
VERSION: 2
"""
CLIP = "python -m open_clip_train.main --local-loss --train-num-samples 100 --warmup 20 --model ViT-B-32\n"
EXP = """class Exp(MyExp):
    def __init__(self):
        super().__init__()
        self.basic_lr_per_img = 0.01 / 64.0
        self.no_aug_epochs, self.name = 15, os.path.split(__file__)
        self.mosaic_scale = (0.1, 2)
        self.depth = 0.33
        self.min_lr_ratio = 0.05
        self.max_epoch = 300
"""
MAE = "python submitit_pretrain.py --nodes 8 --batch_size 64 --norm_pix_loss --mask_ratio 0.75 --blr 1.5e-4\n"
MINDFORMERS = """lr_schedule: {learning_rate: 1.5e-4, type: cosine}
lr_scale: True
lr_scale_factor: 256
runner_config: {epochs: 10, batch_size: 64}
model: {model_config: {mask_ratio: 0.7}}
"""
ULTRALYTICS = (
    "lr0: 0.01\nlrf: 0.01\nclose_mosaic: 10\ncos_lr: false\nbatch: 16\nimgsz: 640\noptimizer: OPT\nsplit: val\n"
)
MINDYOLO = """optimizer: {optimizer: momentum, lr_init: 0.02, end_factor: 0.01, group_param: yolov8}
data: {train_transforms: {stage_epochs: [490, 15], trans_list: [[{func_name: random_perspective, scale: 0.5}]]}}
epochs: 100
per_batch_size: 16
"""
DIFFUSERS = """accelerate launch train.py --max_train_steps=400 --num_train_epochs 1 --lr_scheduler=constant --rank 4 \\
  --lr_warmup_steps=500 --snr_gamma 5 --random_flip
"""
DETECTOR = """rpn_proposal_max_num: 2000
anchor_scales: [8]
neg_iou_thr_stage2: 0.5
base_lr: 0.02
lr_type: dynamic
num_classes: 81
img_width: 1280
"""
MMDET = """default_scope = 'mmdet'
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.02, momentum=0.9))
param_scheduler = [dict(type='ConstantLR', factor=0.1, by_epoch=False, end=500), dict(type='CosineAnnealingLR')]
model = dict(train_cfg=dict(rpn_proposal=dict(max_per_img=1000)), roi_head=dict(bbox_head=dict(num_classes=80)))
train_dataloader = dict(dataset=dict(pipeline=[dict(type='Resize', scale=(1333, 800), keep_ratio=True)]))
"""
NEOX = "optimizer: {type: Adam, params: {lr: 0.1}}\ngradient_clipping: 1.0\npos_emb: rotary\ninit_method: small_init\n"
HUGGING_FACE = "per_device_train_batch_size: 2\nlogging_steps: 1\n"


@pytest.mark.parametrize(
    ("trainer", "first", "second", "expected"),
    [
        ("Ultralytics", ("a.yaml", ULTRALYTICS.replace("OPT", "SGD")), MINDYOLO,
         {"learning_rate": ("0.01", "0.02"), "plain_epochs": ("10", "15"),
          "precision": ("float16", "float32"), "seed": ("0", "2")}),
        ("Ultralytics", ("a.yaml", ULTRALYTICS.replace("OPT", "auto")), MINDYOLO,
         {"plain_epochs": ("10", "15"), "precision": ("float16", "float32"), "seed": ("0", "2")}),
        ("diffusers' examples", ("a.sh", DIFFUSERS), "max_steps: 500\nwarmup_steps: 0\nlora_rank: 8\nhflip: 0.5\n",
         {"max_steps": ("400 steps", "500 steps"), "lora_rank": ("4", "8")}),
        ("mmengine", ("a.py", MMDET), DETECTOR, {"proposals": ("1000", "2000"), "image_width": ("1333", "1280")}),
        ("mmengine", ("a.py", MMDET), "warmup_steps: 400\nwarmup_lr: 0.001\n",
         {"warmup_steps": ("500 steps", "400 steps"), "warmup_start": ("0.002", "0.001")}),
        ("GPT-NeoX", ("a.yaml", NEOX), "optimizer: adamw\ninit_std: 0.006\nsplit: 969, 30, 1\n", {}),
        ("Hugging Face Trainer", ("a.yaml", HUGGING_FACE), "max_grad_norm: 2\nlr_end: 1e-5\nlr: 5e-5\n",
         {"min_learning_rate": ("0", "1e-05"), "clip_norm": ("1", "2")}),
        ("detectron2", ("a.yaml", DETECTRON2), "lr: 0.02\nglobal_batch_size: 8\nmomentum: 0.9\nseed: 1\n",
         {"global_batch": ("16", "8")}),
        ("open_clip", ("a.sh", CLIP), "beta2: 0.999\neps: 1e-6\nwarmup_steps: 20\n", {"beta2": ("0.98", "0.999")}),
        ("open_clip", ("a.sh", CLIP.replace("ViT-B-32", "RN50")), "beta2: 0.999\neps: 1e-8\n", {}),
        ("YOLOX", ("a.py", EXP), "network: {depth_multiple: 0.33}\nepochs: 300\noptimizer: {end_factor: 0.05}\n", {}),
        ("MAE", ("a.sh", MAE), MINDFORMERS, {}),
    ],
)  # fmt: skip
def test_programs_with_tables_of_their_own(
    settings: Any, trainer: str, first: tuple[str, str], second: str, expected: dict[str, Any]
) -> None:
    result = settings.compare(first, ("b.yaml", second))
    assert result.reference.trainer == trainer
    assert {one.parameter: (one.reference.value, one.candidate.value) for one in result.differences} == expected


def test_what_deepspeed_is_given_by_a_trainer_that_drives_it_counts(settings: Any) -> None:
    """Defaults are the trainer's, `auto` is what it asks for, and the scheduler is DeepSpeed's."""
    engine = '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto", "fp16": {"enabled": "auto"}, '
    engine += '"scheduler": {"type": "WarmupLR"}}'
    asked = "deepspeed run.py --per_device_train_batch_size 2 --lr_scheduler_type cosine --fp16 "
    asked += "--gradient_accumulation_steps 4\n"
    files = [settings.file("run.sh", asked)]
    files.append(settings.file("ds.json", engine))
    port = "lr_scheduler: cosine\nfp16: true\nmax_grad_norm: 1.0\nbatch_size: 2\naccumulation_steps: 4\nlr: 5e-5\n"
    result = compare_hyperparameters(",".join(map(str, files)), settings.file("b.yaml", port))
    assert result.reference.trainer == "Hugging Face Trainer"
    assert [(one.parameter, one.reference.value) for one in result.differences] == [("lr_schedule", "WarmupLR")]
    assert {"clip_norm", "precision", "learning_rate", "global_batch"} <= {one.parameter for one in result.equal}


def test_transforms_of_two_programs_are_looked_at_and_of_one_differ(settings: Any) -> None:
    paddle = "Global: {epoch_num: 1, save_model_dir: x}\nTrain: {dataset: {transforms: [A: {x: 1}, B: , C: ]}}\n"
    port = "system: {distribute: true}\ntrain: {dataset: {transform_pipeline: [A: {x: 1}, D: ]}, ckpt_save_dir: x}\n"
    row = next(one for one in settings.compare(("a.yml", paddle), ("b.yaml", port)).unsettled)
    assert (row.parameter, row.reference.value, row.candidate.value) == ("transforms", "A, B, C", "A, D")
    assert settings.differing(("a.yml", paddle), ("b.yml", paddle.replace("C:", "E:"))).keys() == {"transforms"}


def test_a_sign_counts_with_its_case(settings: Any) -> None:
    text = "train: {optimizer: {name: adam}, lr_scheduler: {name: cosine}}\n"
    assert settings.compare(("a.yaml", text), ("b.yaml", text)).reference.trainer == ""
