"""The setting of the log level."""

import pytest
from pydantic import ValidationError

from troupe.runtime.serving import ServingSettings


@pytest.mark.parametrize("given", ["warning", "WARNING"])
def test_log_level_when_written_in_any_case_then_is_taken(given: str) -> None:
    assert ServingSettings.model_validate({"log_level": given}).log_level == "warning"


@pytest.mark.parametrize("given", ["warn1ng", "", "notset"])
def test_log_level_when_there_is_none_of_that_name_then_is_refused(given: str) -> None:
    with pytest.raises(ValidationError, match="'debug', 'info', 'warning' or 'error'"):
        ServingSettings.model_validate({"log_level": given})
