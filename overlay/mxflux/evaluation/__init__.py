# SPDX-License-Identifier: Apache-2.0
"""Evaluation: how much is read, how it is averaged, and what an MLPerf log says of it.

``budget`` imports no torch. The trainer uses ``budget.plan_evaluation`` (or ``budget_of_args``),
``evaluator.Evaluator``, ``warmup.warm_up_validation``, ``probes.ProbeSettings`` and
``mlperf_log.MLPerfLog``.
"""
