"""Fragments as a part of your own Flask application, below a path of their own.

python embedded.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from flask import Flask, Response, url_for

from annotations.clock import SystemClock
from tpf_server.app import DatasetOpener, create_blueprint
from tpf_server.configuration import Configuration
from tpf_server.settings import DatasetSettings, Settings

app = Flask(__name__)


@app.after_request
def after(response: Response) -> Response:
    """A hook of your own: it sees fragments, too."""
    response.headers["X-Served-By"] = "my application"
    return response


with TemporaryDirectory() as folder:
    # base_url is the URL under which clients see the fragments, with their path.
    settings = Settings(base_url="http://localhost/data/", data_dir=folder)
    trains = DatasetSettings(name="trains", source=str(Path(__file__).with_name("trains.ttl")))
    datasets = DatasetOpener().open(Configuration(settings, (trains,)))
    app.register_blueprint(create_blueprint(settings, datasets, SystemClock()), url_prefix="/data")

    with app.test_request_context():
        print(url_for("fragments.fragment", name="trains", page=2))
    answer = app.test_client().get("/data/trains.nt")
    print(answer.status, answer.headers["X-Served-By"])
    for dataset in datasets:
        dataset.close()
