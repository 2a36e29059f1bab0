"""The made-here base model: reproducible, cached, loadable by plain transformers."""

import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from troupe.errors import InvalidArgumentError
from troupe.tasks.registry import load_family
from troupe_trainer.tiny_model.__main__ import main
from troupe_trainer.tiny_model.build import build
from troupe_trainer.tiny_model.demonstrations import demonstrations
from troupe_trainer.tiny_model.recipe import Recipe, TinyModelShape, WarmStart


def recipe(seed: int = 3, careful: int = 6) -> Recipe:
    return Recipe(
        task="plan_path",
        params={"size": 4, "max_actions": 3},
        seed=seed,
        shape=TinyModelShape(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64),
        warm_start=WarmStart(num_careful_steps=careful, num_careless_steps=2, batch_size=8),
    )


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_build_when_repeated_elsewhere_then_bit_equal_and_another_seed_differs(tmp_path: Path):
    for name, made in (("a", recipe()), ("b", recipe()), ("c", recipe(seed=4))):
        assert build(made, tmp_path / name)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")


def test_build_when_the_recipe_was_built_then_cached_and_another_recipe_replaces_it(tmp_path: Path):
    assert build(recipe(), tmp_path / "m")
    before = (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns
    assert not build(recipe(), tmp_path / "m")
    assert (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns == before
    assert build(recipe(careful=7), tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    assert manifest["recipe"]["warm_start"]["num_careful_steps"] == 7
    assert [p.name for p in tmp_path.iterdir()] == ["m"], "a staging folder was left behind"


def test_tokenizer_when_loaded_then_any_text_survives_and_prompts_render(tmp_path: Path):
    build(recipe(), tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m")
    for text in ("plan R R D", "größer, 你好 \t\n x=1", "walls a1 b2"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids).strip() == text.strip()
    family = load_family("plan_path", {"size": 4, "max_actions": 3})
    env = family.environment()
    seen = env.observe(env.reset(family.taskset().task("test", 0)), "planner")
    chat = [{"role": m.role, "content": m.content} for m in seen]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert max(ids) < len(tokenizer)
    assert seen[0].content in tokenizer.decode(ids)


def test_warm_start_when_longer_then_the_model_imitates_better(tmp_path: Path):
    family = load_family("plan_path", {"size": 4, "max_actions": 3})
    clean = WarmStart(num_careful_steps=4, num_careless_steps=0, batch_size=8)
    losses: list[float] = []
    for careful in (0, 40):
        folder = tmp_path / str(careful)
        build(recipe(careful=careful), folder)
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        samples = list(islice(demonstrations(family, tokenizer, clean, Random(9)), 32))
        total = 0.0
        with torch.no_grad():
            for sample in samples:
                ids = torch.tensor([[*sample.prompt, *sample.completion]])
                logprobs = model(ids).logits[0].log_softmax(-1)
                start = len(sample.prompt) - 1
                picked = logprobs[start:-1].gather(1, ids[0, start + 1 :, None])
                total -= float(picked.mean())
        losses.append(total / len(samples))
    assert losses[1] < 0.7 * losses[0]


def test_build_when_the_task_is_unknown_then_error_names_the_known_ones(tmp_path: Path):
    with pytest.raises(InvalidArgumentError, match="plan_path"):
        build(recipe().model_copy(update={"task": "plan_pth"}), tmp_path / "m")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--warm-start", '{"slip_rate": .3}'], "--warm-start is not JSON"),
        (["--warm-start", '{"slip_rat": 0.3}'], "did you mean 'slip_rate'?"),
        (["--shape", "[1]"], "--shape must be a JSON object"),
        (["--task", "plan_pathh"], "did you mean 'plan_path'?"),
        (["--params", '{"sizee": 3}'], "/params/sizee"),
        (["--size", "2"], "/params/size"),
    ],
)
def test_command_when_an_argument_is_wrong_then_says_which_and_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["--out", str(tmp_path / "m"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


def write_rows(path: Path, **change: object) -> Path:
    rows = [
        {"prompt": f"say {n}", "answer": {"a": f"{n} it is", "b": "yes"}} | change
        for n in range(20)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_when_they_have_answers_then_the_model_learns_them_under_the_instructions(
    tmp_path: Path,
):
    rows, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "m"
    shape = '{"hidden_size": 32, "num_layers": 2, "num_heads": 2, "intermediate_size": 64}'
    warm = '{"num_careful_steps": 60, "num_careless_steps": 0, "batch_size": 16}'
    command = ["--rows", str(rows), "--agents", '{"a": "Repeat.", "b": "Agree."}']
    command += ["--shape", shape, "--warm-start", warm, "--out", str(out)]
    assert main(command) == 0
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(out)
    chat = [{"role": "system", "content": "Agree."}, {"role": "user", "content": "say 3"}]
    ids = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    with torch.no_grad():
        made = model.generate(ids, do_sample=False, max_new_tokens=3)
    assert tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True) == "yes"
    before = (out / "model.safetensors").stat().st_mtime_ns
    assert main(command) == 0
    assert (out / "model.safetensors").stat().st_mtime_ns == before
    write_rows(rows, answer={"a": "no", "b": "no"})
    assert main(command) == 0
    assert (out / "model.safetensors").stat().st_mtime_ns != before


def test_rows_when_an_answer_lacks_then_says_which_row_and_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = write_rows(tmp_path / "rows.jsonl", answer={"a": "x"})
    command = ["--rows", str(rows), "--agents", '{"a": "", "b": ""}', "--out", str(tmp_path / "m")]
    assert main(command) == 2
    assert "row 0 has no 'answer' of agent 'b'" in capsys.readouterr().err
    assert main(["--rows", str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "m")]) == 2
    assert "none.jsonl does not exist" in capsys.readouterr().err


def test_main_when_the_family_has_a_usual_warm_start_then_flags_alone_differ_from_it(
    tmp_path: Path,
) -> None:
    shape = '{"hidden_size": 32, "num_layers": 1, "num_heads": 2, "intermediate_size": 32}'
    params = ["--task", "guided_walk", "--size", "4", "--params", '{"view": "beside"}']
    flags = ["--warm-start", '{"num_careful_steps": 2}', "--shape", shape]
    assert main([*params, *flags, "--out", str(tmp_path / "m")]) == 0
    made = json.loads((tmp_path / "m" / "manifest.json").read_text())["recipe"]["warm_start"]
    assert (made["num_careful_steps"], made["num_careless_steps"], made["solo_share"]) == (2, 0, 0)


def test_main_when_the_task_is_a_job_spec_then_takes_its_parameters_and_flags_change_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "name: walk\nsteps: 1\ntasks_per_step: 1\n"
        "task: {name: guided_walk, params: {size: 5, view: beside}}\n"
        "workflow: {order: [scout, walker], max_turns: 4}\n"
        "agents: {scout: {policy: one}, walker: {policy: one}}\n"
        "policies: {one: {model: models/none}}\nalgorithm: {kind: at_grpo}\n"
    )
    shape = '{"hidden_size": 32, "num_layers": 1, "num_heads": 2, "intermediate_size": 32}'
    flags = ["--size", "4", "--warm-start", '{"num_careful_steps": 2}', "--shape", shape]
    assert main(["--task", str(spec), *flags, "--out", str(tmp_path / "m")]) == 0
    recipe = json.loads((tmp_path / "m" / "manifest.json").read_text())["recipe"]
    assert (recipe["task"], recipe["params"]) == ("guided_walk", {"size": 4, "view": "beside"})
    missing = str(tmp_path / "none.yaml")
    assert main(["--task", missing, "--out", str(tmp_path / "n")]) == 2
    assert "none.yaml" in capsys.readouterr().err
