"""The codes that results name (`layer-norm-eps`, `residual-missing`, `slow_drift`): what each means, and what to write.

They stand where they are used: settings in `mappings/pitfalls`, advice in `mappings/advice`, what a source says in
`mappings/source_rules.toml`, and what the data show in the catalogues of words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from align.rules.advice_rules import advice_rules
from align.rules.layer_rules import mappings_folder, read_rules
from align.rules.pitfalls import pitfalls
from align.words.catalogue import ENGLISH, catalogue, close_names, phrase, spoken

# Of each table of words whose keys are codes: the page that tells how such a code is found.
TABLES = {
    "cause": "causes",
    "step_cause": "step",
    "trouble": "loss",
    "data_cause": "data",
    "nonfinite_cause": "nonfinite",
    "scale_trouble": "loss-statistics",
}
PAGES = {"setting": "lint", "advice": "advise", "source": "scan"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a code means, in the language that is spoken.

    `kind` is the table of words that has it, or `setting`, `advice`, `source`; `forms` are the classes that have the
    setting, with the argument; `change` is what to write, by framework, "" for either.
    """

    code: str
    kind: str
    meaning: str
    page: str
    severity: str = ""
    forms: tuple[tuple[str, str], ...] = ()
    change: tuple[tuple[str, str], ...] = ()
    check: str = ""
    source: str = ""


def explanations() -> dict[str, tuple[Explanation, ...]]:
    """All codes in the order of their names; some are known to several commands.

    >>> explanations()["leaky-relu-slope"][0].forms[0]
    ('torch.nn.LeakyReLU', 'negative_slope')
    """
    known: dict[str, list[Explanation]] = {}
    for one in (*_settings(), *_words(), *_advice(), *_sources()):
        known.setdefault(one.code, []).append(one)
    return {code: tuple(known[code]) for code in sorted(known)}


def explain_code(code: str) -> tuple[Explanation, ...]:
    """What is said of a code, however its words are joined (`slow_drift`, `slow drift`, `slow-drift`).

    Raises KeyError with the codes that come closest.
    """
    known = explanations()
    plain = {_plain(name): name for name in known}
    try:
        return known[plain[_plain(code)]]
    except KeyError:
        raise KeyError([plain[name] for name in close_names([_plain(code)], plain)[_plain(code)]]) from None


def _plain(code: str) -> str:
    return code.strip().lower().replace("_", "-").replace(" ", "-")


def _settings() -> list[Explanation]:
    return [
        Explanation(
            rule.id,
            "setting",
            phrase(rule.effect),
            PAGES["setting"],
            rule.severity,
            forms=tuple(
                (name, form.argument if form.attributes else str(form.always))
                for form in rule.forms
                for name in form.classes
            ),
            change=tuple((name, form.instead) for form in rule.forms if form.instead for name in form.classes),
        )
        for rule in pitfalls()
    ]


def _words() -> list[Explanation]:
    words, english = catalogue(spoken()), catalogue(ENGLISH)
    return [
        Explanation(code, table, words[table].get(code, text), page)
        for table, page in TABLES.items()
        for code, text in english[table].items()
        if isinstance(text, str) and "{" not in text
    ]


def _advice() -> list[Explanation]:
    return [
        Explanation(
            rule.id,
            "advice",
            phrase(rule.title),
            PAGES["advice"],
            rule.level,
            change=tuple(rule.change.items()),
            check=phrase(rule.check),
            source=rule.source,
        )
        for rule in advice_rules()
    ]


def _sources() -> list[Explanation]:
    rules: list[dict[str, Any]] = read_rules(mappings_folder() / "source_rules.toml", lambda table: [*table["rule"]])
    return [
        Explanation(rule["id"], "source", phrase(rule["why"]), PAGES["source"], change=(("", rule["write"]),))
        for rule in rules
    ]
