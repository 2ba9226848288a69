__version__: str

from .allocation.guard import ExposureGuard as ExposureGuard
from .data.interactions import Interactions as Interactions
from .data.loading import load as load
from .data.loading import load_split as load_split
from .data.locations import items_near as items_near
from .data.named_sets import items_of as items_of
from .data.splits import split as split
from .data.synthetic import synthetic_market as synthetic_market
from .evaluation.long_term import LongRun as LongRun
from .evaluation.long_term import LongRunSettings as LongRunSettings
from .evaluation.short_term import evaluate as evaluate
from .fcpo.config import PRESETS as PRESETS
from .fcpo.config import FcpoConfig as FcpoConfig
from .fcpo.model import Fcpo as Fcpo
from .limits.counts import Exposure as Exposure
from .limits.groups import attribute_group as attribute_group
from .limits.groups import popular_group as popular_group
from .limits.step_limits import (
    GiniLimit as GiniLimit,
)
from .limits.step_limits import (
    GroupFloor as GroupFloor,
)
from .limits.step_limits import (
    GroupLimit as GroupLimit,
)
from .limits.step_limits import (
    PopularityLimit as PopularityLimit,
)
from .lird import Lird as Lird
from .lird import LirdConfig as LirdConfig
from .lird import OnlineLird as OnlineLird
from .metrics.summary import METRICS as METRICS
from .metrics.summary import MeasuredLists as MeasuredLists
from .model.explain import Explanation as Explanation
from .model.model import Model as Model
from .model.model import ModelServer as ModelServer
from .model.model import fit as fit
from .model.model import open_model as open_model
from .model.serving import LimitsNotKeptWarning as LimitsNotKeptWarning
from .rankers.als import Als as Als
from .rankers.als import AlsConfig as AlsConfig
from .rankers.bpr import Bpr as Bpr
from .rankers.bpr import BprConfig as BprConfig
from .rankers.ease import Ease as Ease
from .rankers.ease import EaseConfig as EaseConfig
from .rankers.ease import RecentEase as RecentEase
from .rankers.ease import RecentEaseConfig as RecentEaseConfig
from .rankers.given_scores import GivenScores as GivenScores
from .rankers.gru4rec import Gru4Rec as Gru4Rec
from .rankers.gru4rec import Gru4RecConfig as Gru4RecConfig
from .rankers.itemknn import ItemKnn as ItemKnn
from .rankers.itemknn import ItemKnnConfig as ItemKnnConfig
from .rankers.itemknn import RecentItemKnn as RecentItemKnn
from .rankers.itemknn import RecentItemKnnConfig as RecentItemKnnConfig
from .rankers.mf import Mf as Mf
from .rankers.mf import MfConfig as MfConfig
from .rankers.ncf import Ncf as Ncf
from .rankers.ncf import NcfConfig as NcfConfig
from .rankers.popularity import Popularity as Popularity
from .rankers.sasrec import SasRec as SasRec
from .rankers.sasrec import SasRecConfig as SasRecConfig
from .recommenders.base import RankedLists as RankedLists
from .recommenders.given_lists import GivenLists as GivenLists
from .recommenders.progress import Listener as Listener
from .recommenders.progress import PrintedProgress as PrintedProgress
from .recommenders.ranked.by_user import OnlineRanked as OnlineRanked
from .recommenders.ranked.model import Ranked as Ranked
from .rerank.exposure import ExposureFairness as ExposureFairness
from .rerank.fairco import FairCo as FairCo
from .rerank.penalty import Penalty as Penalty
from .rerank.pmmf import Pmmf as Pmmf
from .rerank.quota import Quota as Quota
from .rerank.tfrom import Tfrom as Tfrom
from .simulation.feedback import (
    evaluation_scenario as evaluation_scenario,
)
from .simulation.feedback import (
    serving_scenario as serving_scenario,
)
from .simulation.simulated import (
    SimulatedUsers as SimulatedUsers,
)
from .simulation.simulated import (
    SimulationConfig as SimulationConfig,
)
from .vocabulary import Mode as Mode
from .vocabulary import Protocol as Protocol
