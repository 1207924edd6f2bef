"""Fine-tuning carried out: a local LLM learns from its own calibration rounds (paper 001, section 3.3 and A.1).

Two sets can be learnt from. ``rounds`` is the paper's: reformulated inputs with scores and earlier answers, from the
latest calibration of a split (`finetune.fine_tuning_set`). ``answers`` is its baseline, "LoRA tuning": the questions
with their documents, and the references.

The state of a training is kept beside the workspace's other files under a key made of everything that determines its
result, so that the same command goes on after a kill, and only then.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ...backends.hf.adapters import FILES, ORIGIN, base_of, is_adapter, origin_of, peft_package
from ...backends.hf.gguf import model_of
from ...backends.hf.loading import device_named, digest_of, dtype_named, fingerprint, load_description
from ...backends.hf.tokens import Unrendered, context_of, tokens_in
from ...base.errors import Cancelled, UsageError, counted
from ...base.packages import VERSION
from ...base.progress import SILENT, Event, Monitor
from ...llm.asking import llm_settings
from ...llm.cost import Usage
from ...llm.spec import parse
from ...pool.records import Message, Split
from ...store import runs
from ...store.settings import Settings
from ...store.targets import check_folder
from ...store.workspace import Workspace
from .finetune import ARM, FineTuningSet, answer_set, fine_tuning_set
from .lora import Lesson, Recipe, Trainer, lesson_of
from .results import FineTuningCost, FineTuningMetrics, FineTuningRun, TrainedStep

KIND = "train calibration"
TASK = "train"
FOLDER = "adapters"
"""The folder of the workspace for adapters, and for the states of unfinished trainings."""
KEEP_EVERY = 30.0
"""Seconds between two writes of the state; a kill loses no more."""

On = Literal["rounds", "answers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuningPlan:
    """What to learn from, and where the adapter goes (None: into the workspace). ``recipe`` as in `lora.Recipe`;
    ``arm`` and ``balance`` as in `fine_tuning_set`."""

    recipe: Recipe
    on: On = "rounds"
    split: Split = "validation"
    limit: int | None = None
    out: Path | None = None
    force: bool = False
    arm: str = ARM
    balance: bool = False


@dataclass(frozen=True, slots=True)
class FineTuning:
    """A prepared fine-tuning of the model ``name``: the examples of the ``set`` that fit into its context are encoded
    (``lessons``), and ``too_long`` others are not; no weights are loaded yet. ``key`` is of everything that determines
    the result, which is written to ``out``."""

    workspace: Workspace
    settings: Settings
    plan: FineTuningPlan
    monitor: Monitor
    name: str
    set: FineTuningSet
    lessons: Sequence[Lesson]
    too_long: int
    key: str
    out: Path

    @classmethod
    def prepare(
        cls, workspace: Workspace, settings: Settings, plan: FineTuningPlan, monitor: Monitor = SILENT
    ) -> FineTuning:
        """Make the set and encode it. Raises `UsageError` for an LLM that is not in this process, an existing target,
        and whatever the set raises; `LLMError` if the chat template refuses every conversation: one that it refuses is
        left out, with a warning."""
        if not parse(settings.llm).loads_model:
            raise UsageError(
                f"the weights of {settings.llm} are not on this machine, so they cannot be trained here",
                "--llm hf:PATH, or fine-tune with your provider on icl-curate export SET.jsonl --format calibration",
            )
        peft_package()
        name, _ = model_of(parse(settings.llm))
        tokenizer, config = load_description(name)
        examples = _set(workspace, settings, plan, tokenizer)
        conversations = [[Message(t["role"], t["content"]) for t in e.messages] for e in examples.examples]
        encoded, refused = list[Lesson](), list[Unrendered]()
        for turns in conversations:
            try:
                encoded.append(lesson_of(tokenizer, turns))
            except Unrendered as error:
                refused.append(error)
        if refused and not encoded:
            raise refused[0]
        if refused:
            left_out = f"{counted(len(refused), 'conversation', 'was', 'were')} left out: {refused[0].what}"
            examples = replace(examples, warnings=(*examples.warnings, left_out))
        limit = context_of(tokenizer, config)
        lessons = [lesson for lesson in encoded if limit is None or len(lesson.ids) <= limit]
        if not lessons:
            raise UsageError(f"no example fits into the model's {limit:,} tokens", "--document-tokens, with fewer")
        if too_long := len(encoded) - len(lessons):
            left_out = f"{counted(too_long, 'example', 'is', 'are')} too long for the model and left out"
            examples = replace(examples, warnings=(*examples.warnings, left_out))
        key = _key(name, config, settings, plan, lessons, conversations)
        out = plan.out or workspace.path / FOLDER / key[:12]
        _check_target(out, key, plan.force)
        return cls(workspace, settings, plan, monitor, name, examples, lessons, too_long, key, out)

    def cost(self) -> FineTuningCost:
        """What `run` would do."""
        steps = self.plan.recipe.epochs * -(-len(self.lessons) // self.plan.recipe.batch)
        return FineTuningCost(
            self.settings.llm,
            str(self.out),
            self.plan.on,
            self.plan.split,
            len(self.lessons),
            steps,
            _tokens(self.lessons) * self.plan.recipe.epochs,
            dict(self.set.counts),
            self.set.warnings,
        )

    def run(self) -> FineTuningRun:
        """Train, and write the adapter; what an earlier call has written is returned as it is."""
        if not self.plan.force and _written(self.out, self.key):
            return FineTuningRun.from_json(origin_of(str(self.out))["training"])
        plan = self.plan
        settings = {"on": plan.on, "split": plan.split, "arm": plan.arm, **asdict(plan.recipe), "version": VERSION}
        with runs.recorded(self.workspace, KIND, self.settings.llm, settings) as record:
            done = self._train(record.run)
            record.summary = done.as_json()
        return done

    def _train(self, run: int) -> FineTuningRun:
        access, start = llm_settings(self.settings), time.monotonic()
        trainer = Trainer(self.name, access.dtype, access.device, self.plan.recipe, self.lessons)
        state = self.workspace.path / FOLDER / f"{self.key}.safetensors"
        trainer.resume(state, self.key)
        resumed = len(trainer.losses)
        if resumed:
            self.monitor.report(Event(TASK, resumed, trainer.steps, f"goes on after step {resumed} of {trainer.steps}"))
        self._learn(trainer, state)
        metrics = FineTuningMetrics(
            on=self.plan.on,
            split=self.plan.split,
            examples=len(self.lessons),
            counts=dict(self.set.counts),
            warnings=self.set.warnings,
            too_long=self.too_long,
            steps=tuple(TrainedStep(i, loss) for i, loss in enumerate(trainer.losses, 1)),
            trained_tokens=sum(len(lesson.ids) - lesson.split for lesson in self.lessons) * self.plan.recipe.epochs,
            parameters=sum(value.numel() for value in trainer.weights.values()),
            recipe=asdict(self.plan.recipe),
            document_tokens=self.set.document_tokens,
            resumed_at=resumed,
            seconds=time.monotonic() - start,
        )
        usage = Usage(tokens_in=_tokens(self.lessons) * self.plan.recipe.epochs)
        done = FineTuningRun(run, self.settings.llm, usage, str(self.out), metrics)
        trainer.keep(state, self.key)  # if the target cannot be written, the same command with another one can
        self._publish(trainer, done)
        state.unlink(missing_ok=True)
        return done

    def _learn(self, trainer: Trainer, state: Path) -> None:
        """Train to the end; when stopped, the state of the last finished step is written first."""
        written, since = len(trainer.losses), time.monotonic()
        try:
            for loss in trainer.run(self.monitor.check):
                self.monitor.report(Event(TASK, len(trainer.losses), trainer.steps, fields={"loss": loss}))
                if time.monotonic() - since >= KEEP_EVERY:
                    trainer.keep(state, self.key)
                    written, since = len(trainer.losses), time.monotonic()
        except (Cancelled, KeyboardInterrupt):
            if len(trainer.losses) > written:
                trainer.keep(state, self.key)
            raise

    def _publish(self, trainer: Trainer, done: FineTuningRun) -> None:
        """Write the adapter into a temporary folder, then rename it. Raises `UsageError` for what came to the target
        while it was trained; a predecessor is removed last, so that a kill leaves one of them."""
        out = self.out.resolve()  # through a link
        making, aside = (out.with_name(f".{out.name}.{os.getpid()}.{end}") for end in ("part", "old"))
        making.parent.mkdir(parents=True, exist_ok=True)
        try:
            trainer.save(making)
            spec = parse(self.settings.llm)
            base = origin_of(self.name)["base"] if is_adapter(self.name) else spec.name or spec.kind
            base_path = Path(base).expanduser()
            origin = {
                "base": str(base_path.resolve()) if base_path.exists() else base,
                "base_weights": fingerprint(base_of(self.name), trainer.model.config),
                "key": self.key,
                "training": done.as_json(),
            }
            (making / ORIGIN).write_text(json.dumps(origin, indent=1), encoding="utf-8")
            _check_target(out, self.key, self.plan.force)
            if out.exists():
                out.rename(aside)
            making.rename(out)
            shutil.rmtree(aside, ignore_errors=True)
        finally:
            shutil.rmtree(making, ignore_errors=True)


def _set(workspace: Workspace, settings: Settings, plan: FineTuningPlan, tokenizer: Any) -> FineTuningSet:
    if plan.on == "answers":
        counts = partial(tokens_in, tokenizer)  # as a `LocalModel` does, so that the same documents are cut alike
        return answer_set(workspace, plan.split, settings, plan.limit, counts)
    of_rounds = fine_tuning_set(workspace, plan.split, settings, plan.arm, plan.balance)
    return replace(of_rounds, examples=of_rounds.examples[: plan.limit])


def _key(
    name: str,
    config: Any,
    settings: Settings,
    plan: FineTuningPlan,
    lessons: Sequence[Lesson],
    conversations: Sequence[Sequence[Message]],
) -> str:
    pieces: list[object] = [fingerprint(name, config), asdict(plan.recipe)]
    pieces += [dtype_named(settings.dtype, device_named(settings.device)), [len(x.ids) for x in lessons]]
    pieces += [[(turn.role, turn.content) for turn in turns] for turns in conversations]
    return digest_of([json.dumps(pieces).encode()])


def _check_target(out: Path, key: str, force: bool) -> None:
    """Raise `UsageError` if something is there that must not be replaced."""
    if force or not _written(out, key):
        check_folder(out, force, FILES)


def _written(out: Path, key: str) -> bool:
    """Whether the target holds the result of this very training."""
    return is_adapter(str(out)) and origin_of(str(out)).get("key") == key


def other_length(settings: Settings) -> str:
    """What to say if the LLM is an adapter that learnt from documents of another length than those of now; else
    empty."""
    folder = settings.llm.partition("hf:")[2]
    if not folder or not is_adapter(folder):
        return ""
    try:
        learnt = FineTuningRun.from_json(origin_of(folder)["training"]).metrics.document_tokens
    except (KeyError, ValueError):  # an adapter from elsewhere does not tell
        return ""
    if learnt == settings.document_tokens:
        return ""
    use = "leave out --document-tokens" if learnt is None else f"--document-tokens {learnt}"
    return f"{settings.llm} learnt from documents of another length: {use}"


def _tokens(lessons: Sequence[Lesson]) -> int:
    return sum(len(lesson.ids) for lesson in lessons)
