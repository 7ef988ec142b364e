"""Tuning with Optuna: ``tsattn.tune`` and the command ``tsattn tune``.

space.py      what may vary, from YAML; one sample -> the parameters of a Forecaster
scoring.py    the metric as sums over the validation part
objective.py  one trial: train on every fold, score, report
pruning.py    the callback that reports each epoch, and the pruners by name
storage.py    a journal file or a database, and the lock that makes counting exact
ledger.py     which trial is next; trials of dead workers are failed and retried
worker.py     trials until the study has its total
processes.py  several workers on one machine
ranks.py      one trial on several devices
run.py        ``tune`` itself
result.py     TuneResult
summary.py    the HTML page
"""
