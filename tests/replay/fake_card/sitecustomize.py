"""Every Python process with this folder on its path believes in the pretend card: answers are not
looked at (they are never computed), and there is a GPU."""

import importlib.abc
import importlib.machinery
import os
import sys


def _answers(module):
    from cudahercules.judge.verdict import OutputCheck

    def check(self, task, workload, answer, reference=None):
        return tuple(_right(OutputCheck, t, None) for t in task.outputs)

    def copy(self, task, workload, contestant, sample):
        contestant.outputs(sample)
        return module.KeptAnswer(sample.seed, {}, sample.changed_inputs, sample.damaged_canaries)

    module.DeviceAnswers.check, module.DeviceAnswers.copy = check, copy
    module.DeviceAnswers.reference = lambda self, task, workload, seed: {}


def _right(kind, tensor, tolerance):
    fields = dict.fromkeys(("l2", "row_l2", "element"), 0.0)
    known = {"output": tensor.name, "total": 1, "bound_l2": 1.0, "bound_row_l2": 1.0, "bound_element": 1.0}
    wanted = kind.model_fields
    values = {**fields, **{k: v for k, v in known.items() if k in wanted}}
    missing = [k for k, f in wanted.items() if f.is_required() and k not in values]
    return kind(**{k: v for k, v in values.items() if k in wanted}, **{k: _zero(wanted[k]) for k in missing})


def _zero(field):
    return {int: 1, float: 1.0, str: "", bool: False}.get(field.annotation, ())


def _gpu(module):
    from cudahercules.judge.verdict import OutputCheck

    module.check_output = lambda tensor, tolerance, got, reference: _right(OutputCheck, tensor, tolerance)


def _grade(module):
    module._why_no_gpu = lambda: None


PATCHES = {
    "cudahercules.judge.answers_gpu": _answers,
    "cudahercules.judge.gpu_grading": _gpu,
    "cudahercules.judge.answers_host": _gpu,
    "cudahercules.judge.grade": _grade,
}


class _Patcher(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            PATCHES[name](module)

        spec.loader.exec_module = exec_module
        return spec


if "PRETEND_ANSWERS" not in os.environ:
    sys.meta_path.insert(0, _Patcher())
