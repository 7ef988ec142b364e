"""The parts of the page that need no script: verdict, tables and facts as HTML. Every text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

# A sign beside the word: the colour of the card is not the only one to say it.
VERDICTS = {
    "supported": ("✓", "good", "The map agrees with what the forecast depends on."),
    "partly": ("◐", "fair", "The map says something, but less than it seems to."),
    "not used": ("○", "bad", "The forecast hardly uses its attention: the map explains little of it."),
    "not supported": ("✕", "bad", "The map does not show what the forecast depends on."),
    "inconclusive": ("?", "fair", "The check cannot tell."),
}


def verdict(trust: dict[str, Any]) -> str:
    """The card at the top: can the map be believed?"""
    if "reason" in trust:
        return _card("–", "none", "Not checked", "Whether this map can be believed was not checked.", [trust["reason"]])
    sign, kind, meaning = VERDICTS.get(trust["verdict"], ("?", "fair", ""))
    return _card(sign, kind, trust["verdict"], meaning, trust["reasons"])


def _card(sign: str, kind: str, word: str, meaning: str, reasons: Iterable[str]) -> str:
    return (
        f'<div class="card {kind}"><p class="verdict"><span class="sign" aria-hidden="true">{escape(sign)}</span> '
        f"<strong>{escape(word[:1].upper() + word[1:])}</strong> {escape(meaning)}</p>{_list(reasons)}</div>"
    )


def trust(found: dict[str, Any]) -> str:
    """Checks, thresholds, findings; the curves are drawn into their place by the script, and stand in a table."""
    if "reason" in found:
        return f"<p>{escape(found['reason'])}</p>"
    thresholds = ", ".join(f"{name} {value}" for name, value in found["thresholds"])
    parts = [
        f"<p>{found['windows']:,} windows, method {escape(found['method'])}. Thresholds: {escape(thresholds)}.</p>",
        f"<p>{escape(found['seen'])}</p>",
        table(found["table"]["columns"], found["table"]["rows"], "Checks"),
        '<div id="curves"></div>',
        _curve_table(found["curves"]),
    ]
    if found["findings"]:
        columns = ["finding", "where", "value", "what it means", "what to do"]
        parts.append(table(columns, found["findings"], "What stands out in the map"))
    return "".join(parts)


def _curve_table(curves: list[dict[str, Any]]) -> str:
    if not curves:
        return ""
    rows = [
        [curve["replace"], curve["order"], f"{removed:.0%}", *(_number(value) for value in values)]
        for curve in curves
        for removed, *values in zip(curve["removed"], curve["effect"], curve["low"], curve["high"], strict=True)
    ]
    columns = ["replaced by", "order", "removed", "move of the forecast", "low", "high"]
    return f"<details><summary>The curves as a table</summary>{table(columns, rows, 'Curves')}</details>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def backtest(found: dict[str, Any]) -> str:
    """The scores beside the baselines, and what the model had seen."""
    if "reason" in found:
        return f"<p>{escape(found['reason'])}</p>"
    until = ", ".join(found["trained_until"])
    kind = f"Out of sample: the training ended at {until}, before the first origin."
    if found["in_sample"]:
        kind = f"In sample: the model was trained on rows up to {until}, these steps among them. Read the scores so."
    scores = table(found["table"]["columns"], found["table"]["rows"], "Scores, the model beside the baselines")
    return f"<p>{found['windows']:,} windows. {escape(kind)}</p>{scores}"


def variables(found: list[dict[str, Any]]) -> str:
    """Attention over variables, largest first, with a bar and a number in each row."""
    if not found:
        return ""
    return "".join(_variable_table(each) for each in found)


def _variable_table(layer: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(row)}</th><td>{escape(column)}</td>'
        f'<td class="number">{weight:.1%} <meter value="{weight:.4f}" aria-hidden="true"></meter></td></tr>'
        for row, column, weight in layer["pairs"]
    )
    shown, total = len(layer["pairs"]), layer["of"]
    more = "" if shown == total else f", the largest {shown} of {total:,}"
    caption = (
        f"Layer {layer['layer']}: which variable was read by which, mean over the series shown and heads{more}. "
        f"An even spread is {layer['even']:.1%}."
    )
    head = '<tr><th scope="col">read by</th><th scope="col">variable</th><th scope="col">weight</th></tr>'
    return _framed(f"<caption>{escape(caption)}</caption><thead>{head}</thead><tbody>{rows}</tbody>")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table of text, its first column as row headers; it scrolls by itself where the page is narrow."""
    numeric = [all(_is_number(row[k]) for row in rows) for k in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_NUMBER if number else ""}>{escape(name)}</th>'
        for name, number in zip(columns, numeric, strict=True)
    )
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return _framed(f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>")


_NUMBER = ' class="number"'


def _cells(row: Sequence[str]) -> str:
    rest = "".join(f"<td{_NUMBER if _is_number(cell) else ''}>{escape(cell)}</td>" for cell in row[1:])
    return f'<th scope="row">{escape(row[0])}</th>{rest}'


def _is_number(text: str) -> bool:
    """Whether a cell holds a number, or nothing."""
    try:
        float(text.removesuffix("%").replace("∞", "inf") or "0")
    except ValueError:
        return False
    return True


def _framed(content: str) -> str:
    return f'<div class="wide" tabindex="0" role="group" aria-label="table"><table>{content}</table></div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Pairs as a description list."""
    inside = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f"<dl>{inside}</dl>"


def paragraphs(sentences: Iterable[str]) -> str:
    """One paragraph each."""
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _list(sentences: Iterable[str]) -> str:
    inside = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{inside}</ul>" if inside else ""
