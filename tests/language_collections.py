"""A small test collection in six languages, of our own sentences: twelve documents, four queries
with two relevant documents each, and two references per query.

The words of a query that its relevant documents have are mostly inflected differently there, so
that an analyzer of the language finds them and a division at blanks does not.
"""

import json
from pathlib import Path

LANGUAGES = ("en", "de", "fr", "es", "it", "zh")
RELEVANT = {"q1": ("d1", "d2"), "q2": ("d4", "d5"), "q3": ("d7", "d8"), "q4": ("d10", "d11")}
DOCUMENTS = {
    "en": (
        "Bakers knead the dough before sunrise and bake their loaves in stone ovens.",
        "A loaf of rye bread stays fresh for several days.",
        "Flour prices rose after the dry summer.",
        "The old railway bridges were repaired last spring.",
        "Night trains cross the river on a bridge of steel.",
        "Tickets are sold at the counter in the main station.",
        "Vaccines protect children from measles.",
        "Doctors vaccinated the whole village against measles within a week.",
        "The clinic opens at eight in the morning.",
        "Bees visit the flowers of apple trees in May.",
        "Beekeepers plant flowering meadows for their bees.",
        "The garden shed needs new paint.",
    ),
    "de": (
        "Die Bäcker kneten den Teig vor Sonnenaufgang und backen ihre Brote in Steinöfen.",
        "Dieses Brot aus Roggen bleibt mehrere Tage frisch.",
        "Nach dem trockenen Sommer stiegen die Preise für Mehl.",
        "Die alten Brücken der Eisenbahn wurden im Frühjahr repariert.",
        "Nachts fahren Züge auf einer Brücke aus Stahl über den Fluss.",
        "Fahrkarten gibt es am Schalter im Hauptbahnhof.",
        "Impfungen schützen Kinder vor Masern.",
        "Ärztinnen gaben dem ganzen Dorf eine Impfung gegen Masern.",
        "Die Klinik öffnet um acht Uhr morgens.",
        "Bienen besuchen im Mai die Blüten der Apfelbäume.",
        "Imker säen Wiesen mit vielen Blüten für jede Biene.",
        "Der Schuppen im Garten braucht neue Farbe.",
    ),
    "fr": (
        "Les boulangers pétrissent la pâte avant l'aube et cuisent leurs pains dans des fours.",
        "Un pain de seigle reste frais plusieurs jours.",
        "Le prix de la farine a monté après un été sec.",
        "Les vieux ponts du chemin de fer ont été réparés au printemps.",
        "La nuit, des trains franchissent le fleuve sur un pont d'acier.",
        "Les billets se vendent au guichet de la gare centrale.",
        "Les vaccins protègent les enfants de la rougeole.",
        "Chaque enfant du village a reçu un vaccin contre la rougeole.",
        "La clinique ouvre à huit heures du matin.",
        "Les abeilles visitent les fleurs des pommiers en mai.",
        "Pour chaque abeille, l'apiculteur sème une prairie en fleur.",
        "La cabane du jardin a besoin de peinture.",
    ),
    "es": (
        "Los panaderos amasan antes del amanecer y cuecen los panes en hornos de piedra.",
        "Un pan de centeno se conserva fresco varios días.",
        "El precio de la harina subió tras un verano seco.",
        "Los viejos puentes del ferrocarril fueron reparados en primavera.",
        "De noche los trenes cruzan el río por un puente de acero.",
        "Los billetes se venden en la taquilla de la estación central.",
        "Las vacunas protegen a los niños del sarampión.",
        "Cada niño del pueblo recibió una vacuna contra el sarampión.",
        "La clínica abre a las ocho de la mañana.",
        "Las abejas visitan las flores de los manzanos en mayo.",
        "Para cada abeja, el apicultor siembra un prado en flor.",
        "La caseta del jardín necesita pintura.",
    ),
    "it": (
        "I fornai impastano prima dell'alba e cuociono i pani in forni di pietra.",
        "Un pane di segale resta fresco per diversi giorni.",
        "Il prezzo della farina è salito dopo un'estate secca.",
        "I vecchi ponti della ferrovia furono riparati in primavera.",
        "Di notte i treni attraversano il fiume su un ponte d'acciaio.",
        "I biglietti si vendono allo sportello della stazione centrale.",
        "I vaccini proteggono i bambini dal morbillo.",
        "Ogni bambino del paese ha ricevuto un vaccino contro il morbillo.",
        "La clinica apre alle otto del mattino.",
        "Le api visitano i fiori dei meli in maggio.",
        "Per ogni ape l'apicoltore semina un prato in fiore.",
        "Il capanno del giardino ha bisogno di vernice.",
    ),
    "zh": (
        "面包师在日出前揉面，用石炉烤面包。",
        "黑麦面包可以保鲜好几天。",
        "干旱的夏天以后面粉涨价了。",
        "旧铁路桥在春天修好了。",
        "夜间列车从钢铁大桥上过河。",
        "车票在火车站的窗口出售。",
        "疫苗保护儿童不得麻疹。",
        "医生给全村打了麻疹疫苗。",
        "诊所早上八点开门。",
        "五月蜜蜂采苹果树的花。",
        "养蜂人为蜜蜂播种花草。",
        "小屋需要新的油漆。",
    ),
}
QUERIES = {
    "en": ("baked bread loaf", "repairing a bridge", "vaccinating against measle", "bee flower"),
    "de": ("Brote backen", "Brücken für Züge", "Impfung der Kinder", "Blüte und Biene"),
    "fr": ("Pains frais", "Réparer un pont", "Vaccins pour un enfant", "Abeille et fleurs"),
    "es": ("Panes frescos", "Puentes de tren", "Vacuna para niños", "Abeja y flores"),
    "it": ("Pani freschi", "Ponti e treni", "Vaccino per bambini", "Ape e fiori"),
    "zh": ("面包", "铁路大桥", "麻疹疫苗", "蜜蜂"),
}
REFERENCES = {
    "en": (
        ("Loaves of bread are baked in an oven.", "A baker sells fresh rye bread."),
        ("Engineers repair railway bridges of steel.", "Trains cross a river on a bridge."),
        ("A vaccine against measles protects children.", "Doctors vaccinate a village."),
        ("Bees gather nectar from flowers.", "A beekeeper plants a meadow."),
    ),
    "de": (
        ("Brot wird im Ofen gebacken.", "Der Bäcker verkauft frisches Brot aus Roggen."),
        ("Die Eisenbahn repariert ihre Brücken.", "Ein Zug fährt über eine Brücke aus Stahl."),
        ("Eine Impfung schützt Kinder vor Masern.", "Im Dorf gibt es Impfungen."),
        ("Bienen sammeln Nektar in Blüten.", "Ein Imker sät eine Wiese."),
    ),
    "fr": (
        ("Le pain se cuit dans un four.", "Le boulanger vend du pain de seigle frais."),
        ("On répare les ponts du chemin de fer.", "Un train passe sur un pont d'acier."),
        ("Un vaccin protège l'enfant de la rougeole.", "Le village reçoit des vaccins."),
        ("Les abeilles cherchent le nectar des fleurs.", "L'apiculteur sème une prairie."),
    ),
    "es": (
        ("El pan se cuece en un horno.", "El panadero vende pan fresco de centeno."),
        ("Se reparan los puentes del ferrocarril.", "Un tren cruza un puente de acero."),
        ("Una vacuna protege al niño del sarampión.", "El pueblo recibe vacunas."),
        ("Las abejas buscan el néctar de las flores.", "El apicultor siembra un prado."),
    ),
    "it": (
        ("Il pane si cuoce in un forno.", "Il fornaio vende pane fresco di segale."),
        ("Si riparano i ponti della ferrovia.", "Un treno passa su un ponte d'acciaio."),
        ("Un vaccino protegge il bambino dal morbillo.", "Il paese riceve vaccini."),
        ("Le api cercano il nettare dei fiori.", "L'apicoltore semina un prato."),
    ),
    "zh": (
        ("面包在烤炉里烤熟。", "面包师出售新鲜的黑麦面包。"),
        ("工人修理铁路桥。", "列车经过钢铁大桥。"),
        ("麻疹疫苗保护儿童。", "全村都打了疫苗。"),
        ("蜜蜂从花里采蜜。", "养蜂人播种花草。"),
    ),
}


def write_collection(folder: Path, language: str, prompt: str) -> Path:
    """A folder in BEIR layout with recorded references of a prompt."""
    (folder / "qrels").mkdir(parents=True)
    (folder / "generations").mkdir()
    documents = [
        {"_id": f"d{number}", "title": "", "text": text}
        for number, text in enumerate(DOCUMENTS[language], start=1)
    ]
    queries = [
        {"_id": name, "text": text} for name, text in zip(RELEVANT, QUERIES[language], strict=True)
    ]
    texts = [
        {"query_id": name, "prompt": prompt, "draw": 0, "texts": list(own)}
        for name, own in zip(RELEVANT, REFERENCES[language], strict=True)
    ]
    _write(folder / "corpus.jsonl", documents)
    _write(folder / "queries.jsonl", queries)
    _write(folder / "generations" / f"{prompt}.jsonl", texts)
    lines = [f"{name}\t{document}\t1" for name, own in RELEVANT.items() for document in own]
    judgments = "\n".join(["query-id\tcorpus-id\tscore", *lines])
    (folder / "qrels" / "test.tsv").write_text(judgments + "\n")
    return folder


def _write(file: Path, rows: list[dict]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    file.write_text("".join(lines), encoding="utf-8")
