__version__: str

from .agents.fcpo.config import PRESETS as PRESETS
from .agents.fcpo.config import FcpoConfig as FcpoConfig
from .agents.fcpo.model import Fcpo as Fcpo
from .agents.lird.config import LirdConfig as LirdConfig
from .agents.lird.model import Lird as Lird
from .agents.lird.server import LirdServer as LirdServer
from .agents.progress import Listener as Listener
from .agents.progress import PrintedProgress as PrintedProgress
from .agents.ranked.model import Ranked as Ranked
from .agents.ranked.server import RankedServer as RankedServer
from .agents.served import Served as Served
from .allocation.guard import ExposureGuard as ExposureGuard
from .data.interactions import Interactions as Interactions
from .data.loading import load as load
from .data.locations import items_near as items_near
from .data.sources import items_of as items_of
from .data.sources import synthetic_market as synthetic_market
from .data.splits import split as split
from .environment.feedback import (
    evaluation_scenario as evaluation_scenario,
)
from .environment.feedback import (
    serving_scenario as serving_scenario,
)
from .environment.simulated import (
    SimulatedUsers as SimulatedUsers,
)
from .environment.simulated import (
    SimulationConfig as SimulationConfig,
)
from .evaluation.long_term import LongRun as LongRun
from .evaluation.long_term import LongRunSettings as LongRunSettings
from .evaluation.short_term import evaluate as evaluate
from .exposure.counts import Exposure as Exposure
from .exposure.groups import attribute_group as attribute_group
from .exposure.groups import popular_group as popular_group
from .exposure.step_limits import (
    GiniLimit as GiniLimit,
)
from .exposure.step_limits import (
    GroupFloor as GroupFloor,
)
from .exposure.step_limits import (
    GroupLimit as GroupLimit,
)
from .exposure.step_limits import (
    PopularityLimit as PopularityLimit,
)
from .production.answers import LimitsNotKeptWarning as LimitsNotKeptWarning
from .production.api import fit as fit
from .production.api import open_model as open_model
from .production.explaining import Explanation as Explanation
from .production.model import Model as Model
from .production.server import ModelServer as ModelServer
from .rankers.als import Als as Als
from .rankers.als import AlsConfig as AlsConfig
from .rankers.bpr import Bpr as Bpr
from .rankers.bpr import BprConfig as BprConfig
from .rankers.ease import Ease as Ease
from .rankers.ease import EaseConfig as EaseConfig
from .rankers.gru4rec import Gru4Rec as Gru4Rec
from .rankers.gru4rec import Gru4RecConfig as Gru4RecConfig
from .rankers.itemknn import ItemKnn as ItemKnn
from .rankers.itemknn import ItemKnnConfig as ItemKnnConfig
from .rankers.mf import Mf as Mf
from .rankers.mf import MfConfig as MfConfig
from .rankers.ncf import Ncf as Ncf
from .rankers.ncf import NcfConfig as NcfConfig
from .rankers.popularity import Popularity as Popularity
from .rankers.sasrec import SasRec as SasRec
from .rankers.sasrec import SasRecConfig as SasRecConfig
from .rerank.exposure import ExposureFairness as ExposureFairness
from .rerank.fairco import FairCo as FairCo
from .rerank.penalty import Penalty as Penalty
from .rerank.pmmf import Pmmf as Pmmf
from .rerank.quota import Quota as Quota
from .rerank.tfrom import Tfrom as Tfrom
from .vocabulary import Mode as Mode
from .vocabulary import Protocol as Protocol
