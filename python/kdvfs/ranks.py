# SPDX-License-Identifier: MIT
"""The processes of one job, through the store that the job has.

    ranks = kdvfs.Ranks()                                   # under torchrun, or after init_process_group
    limit = kdvfs.PowerLimit(gpu, ranks=ranks)              # all ranks search together
    ranks.follow_plan(gpu, "plan.json")                     # rank 0 reads the file
    reports = ranks.gather(gpu.report())                    # on rank 0: the report of each rank

Nothing is started and no port is opened: values travel through `torch.distributed`'s store, through any
object with its methods, or through files in a folder that all ranks see (`FolderStore`).
"""

import datetime
import itertools
import json
import os
import re
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

from ._library import Error

_instances = itertools.count()


def _silent(ranks: List[int], seconds: float) -> Error:
    names = ", ".join(map(str, ranks[:16])) + (" and others" if len(ranks) > 16 else "")
    return Error(
        7,
        f"cannot agree with the other ranks: rank{'' if len(ranks) == 1 else 's'} {names} sent nothing for "
        f"{seconds:g} s; see whether the process runs and makes the same calls, or give Ranks a longer timeout",
    )


def _read_trusted(file: Union[str, "os.PathLike[str]"]) -> str:
    """A plan that nobody else may have written, as `Gpu.follow_plan` reads one: ranks copy the text to files of
    their own, where the library no longer sees who wrote it."""
    with open(file, "rb", opener=lambda name, _: os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as plan:
        status = os.fstat(plan.fileno())
        for wrong, why, remedy in (
            (not stat.S_ISREG(status.st_mode), "it is no regular file", "give a plan file"),
            (status.st_uid not in (os.geteuid(), 0), "it belongs to another user", "copy it to a file of your own"),
            (status.st_mode & (stat.S_IWGRP | stat.S_IWOTH), "others may write to it", "chmod go-w it"),
            (status.st_size > 64 << 20, "it is larger than 64 MiB", "no plan is that large"),
        ):
            if wrong:
                raise Error(1, f"cannot read a plan: {os.fspath(file)}: {why}; {remedy}")
        return plan.read(status.st_size).decode()


def _number(name: str) -> Optional[int]:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None


def _rank_and_size() -> Tuple[int, int]:
    for rank_name, size_name in (
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ):
        rank, size = _number(rank_name), _number(size_name)
        if rank is not None and size is not None:
            return rank, size
    raise Error(
        1,
        "cannot find the ranks of the job: neither RANK and WORLD_SIZE nor another launcher's variables are set; "
        "start the program with torchrun, mpirun or srun, or give Ranks rank and size",
    )


def _torch_store(timeout: float) -> Any:
    """The default store of `torch.distributed`, else a client of the store of torchrun's agent."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.distributed_c10d._get_default_store()
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise Error(
            1,
            "cannot find a store: torch.distributed is not initialized; call "
            "torch.distributed.init_process_group first, or give Ranks a store, such as "
            "kdvfs.FolderStore(FOLDER)",
        )
    from torch.distributed import TCPStore

    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=datetime.timedelta(seconds=timeout),
    )


class Ranks:
    """The ranks of a job. All of them make the same calls in the same order, from one thread each.

    A call that other ranks do not answer raises `Error` (timed_out) after `timeout` seconds, with the silent
    ranks by number; every later call raises at once.
    """

    def __init__(
        self,
        store: Any = None,
        rank: Optional[int] = None,
        size: Optional[int] = None,
        timeout: float = 60.0,
    ) -> None:
        """`store` has the methods `set`, `get` and `wait` of `torch.distributed.Store`."""
        if (rank is None) != (size is None):
            raise Error(1, "cannot number the ranks: rank and size belong together; give both or none")
        if rank is None or size is None:
            rank, size = _rank_and_size()
        if not 0 <= rank < size:
            raise Error(1, f"cannot number the ranks: rank {rank} of {size}; give a rank from 0 to {size - 1}")
        if not timeout > 0:
            raise Error(1, f"cannot wait for {timeout!r} s: that is no time; give seconds above 0")
        self.rank, self.size = rank, size
        self._timeout = timeout
        self._store = store if store is not None or size == 1 else _torch_store(timeout)
        for method in ("set", "get", "wait"):
            if size > 1 and not hasattr(self._store, method):
                raise Error(
                    1,
                    f"cannot use {self._store!r} as a store: it has no method {method}; "
                    "give a torch.distributed.Store or kdvfs.FolderStore(FOLDER)",
                )
        # The store may outlive this process: an elastic restart must not read what was sent before it.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._prefix = f"kdvfs/{attempt}/{next(_instances)}"
        self._round = 0
        self._failed: Optional[Error] = None

    def all_gather(self, value: Any) -> List[Any]:
        """What every rank gave, by rank. Values are those that JSON knows."""
        return self._exchange("all_gather", value)

    def gather(self, value: Any) -> Optional[List[Any]]:
        """On rank 0 what every rank gave, by rank; None elsewhere. Ranks but 0 wait only to hear that it went well."""
        return self._exchange("gather", value)

    def broadcast(self, value: Any = None) -> Any:
        """What rank 0 gave."""
        return self._exchange("broadcast", value)

    def barrier(self) -> None:
        """Returns when all ranks are here."""
        self._exchange("barrier", None)

    def combine(self, joules: float, seconds: float) -> Tuple[float, float]:
        """The sum of all ranks' joules and the longest of their times, as `PowerLimit` needs them."""
        answers = self._exchange("combine", [joules, seconds])
        return sum(each[0] for each in answers), max(each[1] for each in answers)

    def follow_plan(self, gpu: Any, file: Union[str, "os.PathLike[str]"]) -> None:
        """Rank 0 reads the plan; scopes of all ranks follow it, as by `Gpu.follow_plan`."""
        text, fault = None, None
        if self.rank == 0:
            try:
                text = _read_trusted(file)
            except (OSError, UnicodeDecodeError) as error:
                fault = [8, f"cannot read the plan: {error}; give the file that kdvfs plan wrote, as rank 0 sees it"]
            except Error as error:
                fault = [Error.codes.index(error.code), str(error)]
        text, fault = self.broadcast([text, fault])
        if fault is not None:
            raise Error(*fault)
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder) / "plan.json"
            own.write_text(text)
            gpu.follow_plan(own)

    def _exchange(self, call: str, value: Any, timeout: Optional[float] = None) -> Any:
        timeout = self._timeout if timeout is None else timeout
        if self._failed is not None:
            raise self._failed
        try:
            sent = json.dumps({"call": call, "value": value})
        except (TypeError, ValueError) as error:
            raise Error(1, f"cannot send a value to other ranks: {error}; give what JSON knows") from None
        if self.size == 1:
            kept = json.loads(sent)["value"]
            return {"broadcast": kept, "barrier": None}.get(call, [kept])
        try:
            if self._round == 0 and hasattr(self._store, "join"):
                timeout -= self._store.join(self.rank, self.size, timeout)
            answer = self._collect(call, sent, timeout) if self.rank == 0 else self._ask(sent, timeout)
            if "error" in answer:
                raise Error(*answer["error"])
            return answer["value"] if self.rank == 0 or call != "gather" else None
        except Error as error:
            self._failed = error
            raise

    def _key(self, number: int, who: Union[int, str]) -> str:
        return f"{self._prefix}/{number}/{who}"

    def _ask(self, sent: str, timeout: float) -> Dict[str, Any]:
        number = self._round
        self._round += 1
        self._call("set", self._key(number, self.rank), sent)
        answer = self._key(number, "answer")
        if not self._wait([answer], timeout):
            raise _silent([0], timeout)
        return json.loads(self._call("get", answer))

    def _collect(self, call: str, sent: str, timeout: float) -> Dict[str, Any]:
        """Rank 0 reads what all sent and answers all, so that 1000 ranks make 4000 calls of the store."""
        number = self._round
        self._round += 1
        keys = [self._key(number, rank) for rank in range(1, self.size)]
        # Others wait as long: they hear from rank 0 who is silent.
        if self._wait(keys, 0.9 * timeout):
            messages = [json.loads(sent)] + [json.loads(self._call("get", key)) for key in keys]
            answer = self._answer(call, messages)
        else:
            missing = (rank for rank, key in enumerate(keys, 1) if not self._there(key))
            answer = {"error": [7, str(_silent(list(itertools.islice(missing, 17)), timeout))]}
        short = {"value": None} if call in ("gather", "barrier") and "error" not in answer else answer
        self._call("set", self._key(number, "answer"), json.dumps(short))
        # All have taken the answer before, or they would not have sent this.
        if "error" not in answer:
            self._delete([self._key(number - 1, "answer")] if number > 0 else [])
            self._delete(keys)
        return answer

    @staticmethod
    def _answer(call: str, messages: List[Dict[str, Any]]) -> Dict[str, Any]:
        for rank, message in enumerate(messages):
            if message["call"] != call:
                text = (
                    f"cannot agree with the other ranks: rank 0 calls {call} and rank {rank} {message['call']}; "
                    "make the same calls in the same order on all ranks"
                )
                return {"error": [1, text]}
        values = [message["value"] for message in messages]
        return {"value": values[0] if call == "broadcast" else values}

    def _wait(self, keys: List[str], seconds: float) -> bool:
        begin = time.monotonic()
        try:
            self._store.wait(keys, datetime.timedelta(seconds=seconds))
            return True
        except Error:
            raise
        except Exception as error:  # torch's are RuntimeError or DistStoreError
            if all(map(self._there, keys)):
                return True
            if time.monotonic() - begin < 0.5 * seconds:
                raise self._broken(error) from error
            return False

    def _there(self, key: str) -> bool:
        if hasattr(self._store, "check"):  # PyTorch 1.13 has none
            return bool(self._call("check", [key]))
        try:
            self._store.wait([key], datetime.timedelta(milliseconds=20))
            return True
        except Exception:
            return False

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._store, method)(*arguments)
        except Error:
            raise
        except Exception as error:
            raise self._broken(error) from error

    @staticmethod
    def _broken(error: Exception) -> Error:
        first = (str(error) or type(error).__name__).split("\n")[0]
        return Error(8, f"cannot reach the other ranks: the store failed: {first}; see whether rank 0's process runs")

    def _delete(self, keys: List[str]) -> None:
        delete = getattr(self._store, "delete_key", None)
        for key in keys if delete is not None else []:
            try:
                delete(key)
            except Exception:  # some stores cannot; the keys are small
                return


class FolderStore:
    """A store in a folder that all ranks see, such as one on a shared file system: for jobs without PyTorch.

    `job` sets runs at the same time apart; without it the scheduler's number of the job and of its restart is
    taken. The folder is made for its user alone; one of another owner, or one that others may write, is refused.
    Values that an earlier run has left are not read.
    """

    def __init__(self, folder: Union[str, "os.PathLike[str]"], job: Optional[str] = None) -> None:
        if job is None:
            job = self._job()
        if not re.fullmatch(r"[\w.-]{1,100}", job) or job.startswith("."):
            raise Error(1, f"cannot name a job {job!r}; use letters, digits, '_', '-' and '.'")
        self._folder = Path(folder) / f"kdvfs-{job}"
        self._run = ""  # begins the names of its files
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.lstat(self._folder)
        except OSError as error:
            raise Error(8, f"cannot make a folder for the ranks: {error}; give one that all ranks can write") from None
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise Error(
                3,
                f"cannot use {self._folder}: it is another user's, or others may write it; "
                "remove it, or give a folder of your own",
            )

    @staticmethod
    def _job() -> str:
        for names in (("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"), ("PBS_JOBID",), ("LSB_JOBID",),
                      ("FLUX_JOB_ID",), ("TORCHELASTIC_RUN_ID",)):
            if os.environ.get(names[0]):
                return re.sub(r"[^\w.-]", "_", ".".join(os.environ.get(name, "0") for name in names))
        raise Error(
            1,
            "cannot distinguish this job from others: no scheduler's number of it is set; "
            "give FolderStore job=, such as the name of the experiment",
        )

    def _file(self, key: str) -> Path:
        return self._folder / (self._run + key.replace("/", "-"))

    def join(self, rank: int, size: int, timeout: float) -> float:
        """Agrees with the other ranks on a name of this run; `Ranks` calls it. Returns the seconds it took.

        Rank 0 takes a random name and removes other files. The others take only an answer that has a random token
        of their own, so none of an earlier run.
        """
        if self._run:
            return 0.0
        begin, token = time.monotonic(), os.urandom(8).hex()
        silent = self._begin_run(token, size, timeout) if rank == 0 else self._find_run(token, rank, timeout)
        if silent:
            raise _silent(silent, timeout)
        return time.monotonic() - begin

    def _begin_run(self, token: str, size: int, timeout: float) -> List[int]:
        self.set("run", token)
        self._run = token + "-"
        for file in self._folder.iterdir():
            if file.name != "run" and not file.name.startswith((".", self._run)):
                file.unlink(missing_ok=True)
        keys = [f"join/{rank}" for rank in range(1, size)]
        try:
            self.wait(keys, datetime.timedelta(seconds=0.9 * timeout))
        except RuntimeError:
            pass
        silent = [rank for rank, key in enumerate(keys, 1) if not self.check([key])]
        tokens = [self.get(key).decode() for rank, key in enumerate(keys, 1) if rank not in silent]
        self.set("join/answer", json.dumps({"tokens": tokens, "silent": silent}))
        return silent

    def _find_run(self, token: str, rank: int, timeout: float) -> List[int]:
        end, pause, found = time.monotonic() + timeout, 0.0005, b""
        while time.monotonic() < end:
            try:
                run = (self._folder / "run").read_bytes()
                if run != found:
                    self._run, found = run.decode() + "-", run
                    self.set(f"join/{rank}", token)
                answer = json.loads(self.get("join/answer"))
                if token in answer["tokens"]:
                    return answer["silent"]
            except FileNotFoundError:  # not yet, or no longer
                pass
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        return [0]

    def set(self, key: str, value: Union[str, bytes]) -> None:
        """Stores a value; readers see all of it or none."""
        data = value.encode() if isinstance(value, str) else value
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, self._file(key))

    def get(self, key: str) -> bytes:
        return self._file(key).read_bytes()

    def check(self, keys: List[str]) -> bool:
        return all(self._file(key).exists() for key in keys)

    def wait(self, keys: List[str], timeout: datetime.timedelta) -> None:
        """Returns when all keys are there. Raises RuntimeError after `timeout`."""
        end = time.monotonic() + timeout.total_seconds()
        pause = 0.0005
        missing = list(keys)
        while True:
            missing = [key for key in missing if not self._file(key).exists()]
            if not missing:
                return
            if time.monotonic() > end:
                raise RuntimeError(f"{len(missing)} keys are not there")
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def delete_key(self, key: str) -> bool:
        try:
            self._file(key).unlink()
            return True
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Removes what is left of the job's values: one rank calls it when all are done."""
        for file in self._folder.glob("*"):
            file.unlink(missing_ok=True)
        self._folder.rmdir()
