"""docs/programs.md lists the parameters of agent programs as they are."""

import json
import re
from pathlib import Path

from troupe_tasks.programs.params import ProgramParams

PAGE = Path(__file__).parents[2] / "docs" / "programs.md"


def test_docs_when_a_parameter_has_a_default_then_the_table_names_both() -> None:
    section = PAGE.read_text("utf-8").partition("\n## Parameters\n")[2].partition("\n## ")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", section, re.MULTILINE))
    fields = ProgramParams.model_fields.items()
    defaults = {
        name: json.dumps(field.get_default(call_default_factory=True))
        for name, field in fields
        if not field.is_required()
    }
    assert shown == defaults
