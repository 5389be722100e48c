# SPDX-License-Identifier: Apache-2.0
"""The schema of recipes, as JSON Schema for editors and as tables for people."""

from __future__ import annotations

from typing import Any


def json_schema() -> dict[str, Any]:
    """JSON Schema of a recipe file. ``name`` may be left out there, and ``base`` be given."""
    from mxflux.recipe import Recipe

    schema = Recipe.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["properties"]["base"] = {
        "type": "string",
        "description": "Recipe file that this one builds on, from the folder of this one.",
    }
    # A recipe file may leave to its base whatever it likes.
    schema.pop("required", None)
    for definition in schema["$defs"].values():
        definition.pop("required", None)
    return schema


def markdown() -> str:
    """One table a section: key, type, default, meaning."""
    from mxflux.recipe.keys import all_keys

    sections: dict[str, list[str]] = {}
    for key in all_keys().values():
        section, _, name = key.name.rpartition(".")
        default = "required" if key.required else f"`{_default(key.default)}`"
        if key.name == "name":
            default = "the file's name"
        row = f"| `{name}` | {_cell(key.type)} | {default} | {_cell(key.description)} |"
        sections.setdefault(section, []).append(row)
    blocks = []
    for section, rows in sections.items():
        title = f"## `{section}`" if section else "## Top level"
        head = ["| key | value | default | meaning |", "|---|---|---|---|"]
        blocks.append("\n".join([title, "", *head, *rows, ""]))
    return "\n".join(blocks)


def _default(value: Any) -> str:
    from mxflux.recipe.dump import inline

    return inline(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
