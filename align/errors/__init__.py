"""What can go wrong, and the words for it; all errors are imported from here, whichever module words them.

    AlignError
    ├── CannotRunError          could not compare or could not run: exit code 2
    │   ├── UsageError
    │   ├── MissingFileError
    │   │                       checkpoints
    │   ├── NotACheckpointError
    │   │   ├── HostileFileError
    │   │   └── ShardsError
    │   ├── UnsupportedCheckpointError
    │   │   ├── SeveralEntriesError
    │   │   ├── UnsupportedTensorsError
    │   │   └── NeedsItsCodeError
    │   │       └── WholeModuleError
    │   ├── MissingEntryError
    │   ├── MissingClassError
    │   ├── DestinationError
    │   │   └── NoSpaceError
    │   ├── VerificationError
    │   │                       models
    │   ├── SideError
    │   ├── SharedModelError
    │   ├── UserCodeError
    │   │   └── ModelFailedError
    │   ├── UnreadableModelError
    │   ├── FrameworkMissingError
    │   ├── InputsError
    │   ├── NothingInCommonError
    │   ├── UnlikeTracesError
    │   ├── DumpError
    │   │                       logs
    │   ├── UnreadableLogError
    │   ├── EmptyLogError
    │   │   └── UnknownLogError
    │   ├── NoStepError
    │   ├── NoNumberError
    │   ├── AmbiguousLogError
    │   ├── SeveralLossesError
    │   ├── SeveralRunsError
    │   ├── UnorderedLogError
    │   ├── UnlikeLogsError
    │   ├── RepeatedColumnError
    │   ├── MetricMissingError
    │   ├── StepsPerEpochError
    │   │   └── UnknownEpochLengthError
    │   ├── UnlikeCurvesError
    │   ├── GroupedStepsError
    │   ├── MixedJobsError
    │   ├── MixedProcessesError
    │   │                       own_files
    │   ├── OpenNamesError
    │   ├── MapError
    │   ├── MappingRuleError
    │   ├── PitfallFileError
    │   ├── ProjectFileError
    │   ├── UnusedPatternsError
    │   ├── RunFolderError
    │   ├── FolderInUseError
    │   ├── ReportError
    │   │                       settings
    │   ├── UnreadableSettingsError
    │   └── UnreadableProfileError
    └── NotAlignedError         the sides were compared and differ: exit code 1
        └── NonfiniteFoundError a watched training was to stop where it is not finite

The wording sits here, so that the code that raises states only the facts.
"""

from align.errors.base import *  # noqa: F403 - one list of the errors is enough: the tree above, which a test holds
from align.errors.files import *  # noqa: F403
from align.errors.models import *  # noqa: F403
