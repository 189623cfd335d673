"""The errors of this package: ours and the user's, never a variant's (a variant's fault is a `Verdict`).

AutotunerError
├── InputError            the user can mend it: the message says what is wrong and the remedy
│   ├── SourceError       a kernel that does not compile: in the compiler's lines
│   ├── SpaceError        a space file: names the file, the key and what was expected
│   ├── KernelError       a kernel family's kernel.toml
│   ├── ToolchainError    no compiler, or one that cannot do the job
│   ├── StoreError        the study store: unreadable, another driver owns it, no such study or trial
│   │   ├── NoStoreError           there is none yet
│   │   ├── StoreUnavailableError  it is locked, or its server does not answer: waiting may help
│   │   ├── LeaseHeldError         another living process has what this one wants
│   │   ├── LeaseLostError         another process has taken over what this one held
│   │   └── JudgedOtherwiseError   the number or the variant of an outcome is that of another trial
│   ├── DeviceBusyError   another autotuner of this machine times the device: waiting may help
│   └── DiskFullError     nothing more can be written
├── OracleError           calibration found a case on which no baseline is right; the sweep does not start
├── InfrastructureError   our machinery failed while judging a variant (worker lost); the trial runs again
│   └── DeviceFullError   the device has no memory left, which another program may have: waiting may help
├── OutOfTimeError        the time that the user gave is over; what was judged until then is kept
└── Stopped               a person has stopped the command; the message says what is kept and how to go on
"""


class AutotunerError(Exception):
    """Root of every error this package raises on purpose."""


class InputError(AutotunerError):
    """Something the user can mend. The message is one line and says how."""


class SourceError(InputError):
    """What the user wrote does not compile. The message has the lines of the compiler."""


class SpaceError(InputError):
    """A space file is unreadable, incomplete or contradicts itself."""


class KernelError(InputError):
    """A kernel family's folder or its kernel.toml is unusable."""


class ToolchainError(InputError):
    """The compiler is missing or cannot build even a trivial program."""


class StoreError(InputError):
    """The study store cannot be used as asked."""


class NoStoreError(StoreError):
    """There is no study store at this place."""


class StoreUnavailableError(StoreError):
    """The study store is locked, or its server cannot be reached; later it may be there again."""


class LeaseHeldError(StoreError):
    """A living process has the study, the sweep or the device that this one wants."""


class LeaseLostError(StoreError):
    """Another process took this one for dead and has taken over what it held; nothing more may be written for it."""


class JudgedOtherwiseError(StoreError):
    """The store has another trial with the number of an outcome, or with its variant."""


class DeviceBusyError(InputError):
    """Another autotuner of this machine times the device; later it may be free."""


class DiskFullError(InputError):
    """A file could not be written for want of space."""


class OracleError(AutotunerError):
    """No baseline is right on a case of the calibration: the case or the environment is broken."""


class InfrastructureError(AutotunerError):
    """The machinery around a variant failed; says nothing about the variant."""


class DeviceFullError(InfrastructureError):
    """The device has no memory left: another program may have it, and give it back later."""


FULL_PAUSES_S: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 15.0, 15.0)
"""Between tries on a device whose memory is full; together less than a process may take to start."""


class OutOfTimeError(AutotunerError):
    """The time that the user gave is over. What was judged until then is kept."""


class Stopped(AutotunerError):
    """A person has stopped the command. The message says what is kept and how to go on."""


def first_line(error: BaseException) -> str:
    """What an error says first, as the messages of some go on for pages; its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
