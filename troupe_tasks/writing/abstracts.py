"""Scientific abstracts written by this project, and introductions made from their own words."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Abstract:
    """An abstract in parts, from which its text and two introduction paragraphs are made.

    Each part is a clause without a full stop. None of the studies exists.
    """

    title: str
    topic: str
    need: str
    gap: str
    method: str
    data: str
    result: str
    outlook: str

    @property
    def text(self) -> str:
        """The abstract."""
        return (
            f"{_capital(self.topic)} {self.need}. {_capital(self.gap)}. We present a study in "
            f"which {self.method}. {_capital(self.data)}. {_capital(self.result)}. Our findings "
            f"suggest that {self.outlook}."
        )

    def background(self) -> str:
        """The first paragraph of an introduction: why the question matters."""
        return (
            f"Interest in {self.topic} has grown steadily, because it {self.need}. People who "
            "meet this question every day give answers that differ from place to place. The "
            f"reason is simple: {self.gap}. As a result, decisions rest on habit rather than on "
            "careful measurement, although reliable evidence would be cheap when compared with "
            "the cost of a wrong decision. For example, a wrong decision is rarely noticed before "
            "several years have passed, and by then local people cannot say what another decision "
            "would have brought. In this paper we take a small step towards reliable evidence on "
            f"{self.topic}. We first describe the question, then the study and its measurement, "
            "and finally the limits of the evidence. The aim is modest, yet it matters to the "
            "people who pay the cost."
        )

    def method_part(self) -> str:
        """The second paragraph: what was done, what came out, and what follows."""
        return (
            f"Our study of {self.topic} gives a direct answer to this question: {self.method}. "
            f"{_capital(self.data)}. That is more evidence than any small study has had before, "
            "and it allows a careful comparison between one place and another, because every "
            "measurement followed the same description. Moreover, every measurement was repeated "
            "several times, so that the limits of the evidence are known and a wrong reading is "
            f"noticed at once. In short, the result is simple: {self.result}. However, this "
            "evidence has limits as well. If local people differ in their habit, or if the cost of "
            "equipment is higher, then the answer will differ from place to place, and a decision "
            "that is reliable in our study might be wrong elsewhere. Whoever takes a decision on "
            f"{self.topic} should therefore compare the local question with ours first. When this "
            f"is done, the answer matters every day: {self.outlook}. Finally, we describe which "
            "measurement should be taken next, and why several years of careful and reliable "
            "evidence would be cheap in comparison with what a wrong decision has brought to "
            "people and to the place where they live."
        )


def _capital(clause: str) -> str:
    return clause[:1].upper() + clause[1:]


ABSTRACTS: tuple[Abstract, ...] = (
    Abstract(
        "Shade trees and soil moisture in school gardens",
        "planting shade trees in school gardens",
        "promises cooler soil and less watering during dry summers",
        "few gardens have ever measured how soil moisture changes once the trees have grown",
        "moisture sensors were buried under young limes and on open beds of the same garden",
        "twelve gardens were followed over two summers with hourly readings",
        "shaded beds kept a third more moisture and needed watering every fourth day only",
        "gardens with little water gain more from early planting than from larger tanks",
    ),
    Abstract(
        "Night trains and sleep quality",
        "travelling in night trains",
        "saves daylight hours and replaces short flights between large cities",
        "passengers complain about poor sleep but measurements on board are almost absent",
        "volunteers wore movement trackers at home and in three types of sleeping car",
        "two hundred nights of travel were recorded on four different routes",
        "sleep was forty minutes shorter on board and noise at stations explained most of it",
        "quiet boarding rules would improve rest more than wider beds",
    ),
    Abstract(
        "Repair cafes and the life of household devices",
        "mending household devices in repair cafes",
        "keeps toasters, lamps and radios out of the waste for years",
        "nobody has followed repaired devices to learn how long they really last",
        "owners of repaired devices were called every six months after their visit",
        "nine cafes gave us the records of eleven hundred repaired devices",
        "seven in ten devices still worked after three years and lamps lasted longest",
        "teaching simple repairs reduces waste more cheaply than collecting old devices",
    ),
    Abstract(
        "Reading aloud and vocabulary in primary schools",
        "reading aloud to pupils in primary schools",
        "is believed to widen vocabulary at hardly any cost",
        "the effect of daily reading has seldom been separated from that of motivated teachers",
        "teachers were drawn by lot to read aloud for ten minutes or to follow their usual plan",
        "forty classes with nine hundred pupils took vocabulary tests in autumn and spring",
        "pupils who were read to gained twice as many rare words, whatever teacher they had",
        "ten minutes of daily reading is a sensible first measure for schools with little money",
    ),
    Abstract(
        "Green roofs and urban bees",
        "building green roofs in dense cities",
        "could offer wild bees food and nesting places above the traffic",
        "bee counts on roofs are rare and usually cover a single species",
        "traps and cameras were placed on roofs of different height and age",
        "sixty roofs in two cities were visited every week from April to September",
        "low roofs with deep soil hosted twenty bee species while high roofs hosted four",
        "planners should favour deep soil on low buildings when bees are the aim",
    ),
    Abstract(
        "Wooden bridges and winter salt",
        "building wooden bridges for cyclists",
        "cuts the emissions of concrete and can use local timber",
        "road salt in winter is suspected to shorten the life of joints, without data to show it",
        "we compared corroded joints of salted bridges with those of bridges that are only swept",
        "eighty bridges of equal design were inspected after their tenth winter",
        "salted joints lost three times as much metal, most of it where water could not drain",
        "sweeping snow and drilling drains would double the life of wooden bridges",
    ),
    Abstract(
        "Shared kitchens in student housing",
        "sharing kitchens in student housing",
        "lowers rents and brings students from many countries together",
        "housing offices choose the number of students for a kitchen without any evidence",
        "students kept diaries of meals, waste and quarrels in kitchens of different size",
        "thirty kitchens with four to sixteen students took part for one winter",
        "kitchens with up to eight students wasted least food and reported few quarrels",
        "new housing should plan one kitchen for eight students rather than one for sixteen",
    ),
    Abstract(
        "Street lighting and moths",
        "dimming street lighting after midnight",
        "saves energy and may spare moths that circle around lamps",
        "towns dim their lamps to very different levels because no threshold for moths is known",
        "light traps were hung under lamps that were dimmed in four steps",
        "we counted moths on ninety nights in three towns with similar lamps",
        "the number of moths halved at a tenth of full brightness and hardly changed above it",
        "dimming helps moths only when towns dare to go below a tenth of full brightness",
    ),
    Abstract(
        "Music and milk yield in small dairies",
        "playing slow music in small dairies",
        "is popular among farmers who hope for calmer cows and more milk",
        "reports of success come from single farms without any comparison",
        "farms changed between weeks with music and weeks of silence in random order",
        "fourteen dairies recorded milk and heart rate of three hundred cows for half a year",
        "heart rates fell slightly in weeks with music but milk yield did not change",
        "calm milking routines deserve more attention than loudspeakers in dairies",
    ),
    Abstract(
        "Rain gauges run by volunteers",
        "measuring rain with volunteer gauges",
        "fills the gaps between distant weather stations in hilly country",
        "the errors of home gauges are unknown when wind or trees disturb them",
        "each volunteer gauge was paired with a calibrated gauge for one season",
        "one hundred and fifty volunteers sent daily readings from six valleys",
        "gauges under trees missed a quarter of the rain while open gauges missed very little",
        "a photograph of the site is enough to decide which volunteer readings can be trusted",
    ),
)
