"""A dataset of fragments as an rdflib graph: whatever works on a graph works over HTTP.

usage: python rdflib_graph.py [URL of the dataset]
"""

import sys

import rdflib

TRAIN = rdflib.Namespace("http://example.org/train#")


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/trains"
    graph = rdflib.Graph(store="TPF")
    graph.open(url)
    for train, sign in sorted(graph.subject_objects(TRAIN.headSign)):
        print(train, sign)
    answer = graph.query("ASK { ?train <http://example.org/train#headSign> 'Brugge' }")
    print("to Brugge:", answer.askAnswer)
    graph.close()


if __name__ == "__main__":
    main()
