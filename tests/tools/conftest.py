from written_runs import write_run

__all__ = ["write_run"]
