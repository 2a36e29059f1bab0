"""Forum posts written by this project, each with a short and a detailed summary that fit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Post:
    """A post and two summaries of it: ``short`` in a line, ``detailed`` about twice as long."""

    title: str
    text: str
    short: str
    detailed: str


POSTS: tuple[Post, ...] = (
    Post(
        "Neighbour's wind chimes",
        "I moved into a ground floor flat in March and I love it, except for one thing. My "
        "upstairs neighbour has hung four sets of wind chimes on her balcony, right above my "
        "bedroom window. On windy nights they ring until morning and I have started to sleep with "
        "earplugs. I left a friendly note with some biscuits two weeks ago. She thanked me for the "
        "biscuits but the chimes are still there. I do not want to complain to the landlord "
        "because she is an old lady and very kind. How can I raise it again kindly?",
        "A kind neighbour's chimes ruin my sleep and a friendly note changed nothing.",
        "The writer loves the new flat, but chimes hanging above the bedroom ring all night. "
        "Although a note with biscuits was welcome, nothing changed. Since the neighbour is old "
        "and kind, the writer avoids the landlord and asks how to raise the noise again.",
    ),
    Post(
        "Should I quit the band?",
        "I have played bass in a band with three friends since school. We are all around thirty "
        "now and rehearse every Thursday in a rented cellar. Last year our singer became a father "
        "and since then he cancels more than half of our rehearsals on the same day. We still pay "
        "the rent for the cellar, and two gigs had to be called off. I got an offer from another "
        "group that is serious and tours at weekends. My oldest friend says leaving would be a "
        "betrayal. I feel guilty but I also want to play music. What would you do?",
        "My old band keeps cancelling rehearsals; a serious group wants me, but leaving feels "
        "guilty.",
        "The writer plays bass with school friends, but the singer cancels most rehearsals since "
        "becoming a father. As a result, gigs were called off while the cellar still costs rent. "
        "Now a serious group has made an offer. Even though a friend calls leaving a betrayal, the "
        "writer mainly wants to play.",
    ),
    Post(
        "Sourdough will not rise",
        "I have tried to bake sourdough bread for two months and every loaf comes out flat and "
        "dense. My starter is six weeks old, bubbles nicely and doubles after feeding. I use "
        "strong "
        "wheat flour, knead for ten minutes and let the dough rest overnight in the kitchen, which "
        "is quite cold in winter, around fifteen degrees. A colleague told me to use more starter, "
        "a book says to use less water. I changed both at once and the bread was even worse. I "
        "want "
        "to change one thing at a time now. Which one should come first, the temperature or the "
        "starter?",
        "My sourdough stays flat in a cold kitchen; should I change temperature or starter first?",
        "For two months every loaf has come out dense, although the starter doubles after feeding. "
        "The dough rests overnight in a cold winter kitchen. First the writer followed advice on "
        "starter and water at once, but the bread got worse. Therefore the question is which "
        "single change to test next.",
    ),
    Post(
        "Lent my bike, got it back broken",
        "A colleague asked to borrow my bicycle for a weekend tour and I said yes. When he brought "
        "it back on Monday the front wheel was bent and the light was missing. He said that it "
        "must have happened in the train and that I should not worry. The repair shop wants ninety "
        "euros. When I showed him the bill he laughed and told me bicycles wear out. We share an "
        "office and our manager likes him a lot. I do not need the money badly, but it feels wrong "
        "to pay for it. Should I insist or let it go and never lend him anything again?",
        "A colleague returned my borrowed bicycle damaged and only laughs at the bill for its "
        "repair.",
        "After a weekend tour, a colleague brought the borrowed bicycle back with a bent wheel and "
        "without its light. The repair costs ninety euros; however, he laughed about the bill. "
        "Because they share an office, the writer hesitates, and asks whether to insist or let the "
        "money go.",
    ),
    Post(
        "Dog is afraid of the stairs",
        "We adopted a three year old greyhound from a shelter a month ago. He is gentle and walks "
        "well on the lead, but he refuses to climb the stairs to our second floor flat. We have "
        "carried him up and down four times a day, and he weighs thirty kilos. Treats on each step "
        "helped for the first five steps, then he freezes and trembles. The vet checked his joints "
        "and found nothing. My partner hurt his back yesterday, so I am alone with it now. Has "
        "anyone taught an adult dog to use stairs, and how long did it take?",
        "Our healthy adopted greyhound freezes on the stairs, and carrying thirty kilos hurts "
        "our backs.",
        "A month ago the writer adopted a gentle greyhound that trembles on the stairs to the "
        "flat. Treats worked for five steps, and the vet found healthy joints. Carrying thirty "
        "kilos hurt the partner's back; consequently the writer is alone and asks how an adult dog "
        "learns stairs, and how long that takes.",
    ),
    Post(
        "Wedding on a workday",
        "My cousin is getting married on a Wednesday in June, five hours away by train. She chose "
        "the day because the castle is cheaper during the week. I have just started a new job and "
        "get no holidays in the first three months. My aunt says that family comes first and that "
        "any decent company would make an exception. I could ask for two unpaid days, but a friend "
        "in the same firm was refused last year and it was noted in his file. My cousin has not "
        "said anything yet. Is it better to ask at work or to explain it to her now?",
        "My cousin marries far away on a workday, while my new job allows me no holidays in the "
        "first months.",
        "A cousin's wedding falls on a Wednesday in June, because the castle is cheaper then. "
        "However, the writer has started a job without holidays, and a friend was refused unpaid "
        "days before. While the aunt insists that family comes first, the writer wonders whether "
        "to ask the firm or explain it to the cousin.",
    ),
    Post(
        "Learning to swim at forty",
        "I never learned to swim as a child because we lived far from any pool. Now my daughter is "
        "five, has lessons every Saturday and asks me to come into the water with her. I signed up "
        "for an adult course, but in the first lesson I panicked as soon as my face was under "
        "water and I left early. The teacher was patient and offered me a private hour, which is "
        "expensive. I practise breathing in the bathtub and feel silly. I would love to swim with "
        "her by summer. Did anyone start this late, and what helped you against the fear?",
        "At forty I panic as soon as my face is under water, but I want to swim with my daughter "
        "by summer.",
        "The writer never learned to swim, but a five year old daughter now wants company in the "
        "pool. In the first adult lesson the fear of water won. Since private hours are expensive, "
        "the writer practises breathing in the bathtub, and asks other late starters what finally "
        "helped them.",
    ),
    Post(
        "Roommate keeps eating my food",
        "I share a flat with two students. We agreed to buy our own food and to split cleaning "
        "things. For weeks my yoghurt, cheese and even cooked meals vanish from the fridge. One "
        "roommate is away half of the week, so it is clear who takes them. When I asked her she "
        "said she thought we share everything and promised to stop. Yesterday my lunch for work "
        "was gone again. I thought about a small fridge in my room, but the landlord forbids it. "
        "I hate arguments. What is a calm way to make her respect the agreement?",
        "My roommate still takes my food from the fridge, despite our agreement and her promise "
        "to stop.",
        "Three students agreed that everyone buys food separately, but the writer's meals vanish "
        "from the fridge. Although one roommate promised to stop, a lunch was gone again. A "
        "private fridge is forbidden. As the writer hates arguments, the question is how to make "
        "her respect the agreement calmly.",
    ),
    Post(
        "Garden pond turned green",
        "I dug a small pond last spring, about two metres wide, with a liner, some plants and six "
        "goldfish. All summer the water was clear. This year it turned green in April and I cannot "
        "see the fish any more. The shop sold me a chemical that worked for a week, then it came "
        "back even stronger. My father says that I should change all the water, my neighbour says "
        "never to do that. There is full sun on the pond from noon on. I want to avoid more "
        "chemicals because of the frogs. Is shade enough or do I need a pump?",
        "My sunny goldfish pond turned green again after chemicals; should I plant shade or buy "
        "a pump for it?",
        "Last year the small pond with goldfish was clear, but this April it turned green. A "
        "chemical from the shop helped for a week; then the algae returned stronger. Because of "
        "the frogs, the writer wants no more of it, and compares advice: changing the water, "
        "planting shade against full sun, or buying a pump.",
    ),
    Post(
        "Lost my grandfather's watch",
        "My grandfather gave me his old watch when I finished school. It is worth little, but he "
        "wore it for fifty years. On Sunday I took it off at the public pool and left it in the "
        "changing room. When I came back after ten minutes it was gone. I asked at the counter, "
        "put up a note and called the lost property office, without success so far. He turns "
        "ninety next month and always looks at my wrist when I visit. My mother wants me to buy a "
        "similar one and say nothing. I would feel like a liar. Should I tell him?",
        "I lost the old watch of my grandfather at the pool and must decide whether to tell him "
        "the truth.",
        "At the pool the writer left a watch that grandfather wore for fifty years; it vanished "
        "within minutes. Notes and calls to the lost property office brought nothing. While the "
        "mother suggests buying a similar one before his ninetieth birthday, the writer would feel "
        "like a liar and thinks about honesty instead.",
    ),
    Post(
        "Teaching my parents to use video calls",
        "I moved abroad for work and want to see my parents every week. I gave them a tablet for "
        "Christmas and showed them the video call program three times. My mother writes every step "
        "into a notebook, but after each update the buttons look different and she gives up. My "
        "father refuses to touch it and says a telephone is enough. Last week they missed my call "
        "because the sound was off, and everyone was upset. I cannot fly home before autumn. Is "
        "there a device for old people that answers by itself, or a better way to explain it?",
        "My parents struggle with video calls because their tablet keeps changing, and I live "
        "abroad until autumn.",
        "Living abroad, the writer wants weekly video calls with two parents. The mother follows "
        "notes in a notebook; however, each update moves the buttons, and the father refuses the "
        "tablet. After a missed call everyone was upset. The writer asks for a simple device that "
        "answers by itself, or for a better way to teach them.",
    ),
    Post(
        "Marathon with a sore knee",
        "I have trained for my first marathon since January and it is four weeks away. During my "
        "last long run, thirty kilometres, my left knee began to hurt on the outer side. It is "
        "fine when I walk but the pain returns after twenty minutes of running. My training plan "
        "has two more long runs. My running club says to push through, everybody has some pain. A "
        "doctor can see me only in three weeks. I could cycle instead to keep fit. I would be sad "
        "to lose my place after all this work. Do I rest completely or train around it?",
        "My knee began to hurt four weeks before my first marathon; should I rest completely or "
        "cycle instead?",
        "After months of training, the writer's left knee started hurting during a long run. The "
        "pain returns after twenty minutes, while walking is fine. The club advises pushing "
        "through, but no doctor is free for three weeks. Overall, the writer wants to keep the "
        "marathon place and asks whether cycling or complete rest is wiser.",
    ),
)
