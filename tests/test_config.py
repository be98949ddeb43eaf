"""Knows what psboost.config promises; does not know what the settings do."""

import argparse
import ast
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from psboost import config, settings
from psboost.boosting import parameters
from psboost.config import Parameters, TrainConfig, add_flags, check_setting, config_from_args, load_config
from psboost.errors import ParameterError

ROOT = Path(__file__).parents[1]
NEEDED = {"data": "a.svm", "model": "m.json"}


def refused(message, call, *args, **kwargs):
    with pytest.raises(ParameterError) as caught:
        call(*args, **kwargs)
    assert message in str(caught.value)


def toml(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text)
    return path


# ---- Parameters


def test_the_defaults_are_xgboosts():
    params = Parameters()
    assert (params.objective, params.learning_rate) == ("binary:logistic", 0.3)
    assert (params.max_depth, params.max_bin) == (6, 256)
    assert (params.reg_lambda, params.reg_alpha, params.gamma, params.min_child_weight) == (1, 0, 0, 1)
    assert (params.base_score, params.zero_as_missing) == (None, None)
    assert (params.grad_bits, params.sketch) == (None, "weighted")
    assert Parameters.from_dict({}) == params


def test_aliases_stand_for_names():
    params = Parameters.from_dict({"eta": 0.1, "lambda": 2, "alpha": 3, "min_split_loss": 4})
    assert (params.learning_rate, params.reg_lambda, params.reg_alpha, params.gamma) == (0.1, 2, 3, 4)


def test_an_alias_beside_its_name_must_agree():
    assert Parameters.from_dict({"eta": 0.1, "learning_rate": 0.1}).learning_rate == 0.1
    refused("same parameter", Parameters.from_dict, {"eta": 0.1, "learning_rate": 0.2})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("max_dept", "max_depth"),
        ("learningrate", "learning_rate"),
        ("reg_lamda", "reg_lambda"),
        ("lamda", "lambda"),
    ],
)
def test_an_unknown_parameter_gets_the_nearest_name(name, nearest):
    refused(f"did you mean {nearest}?", Parameters.from_dict, {name: 1})


def test_an_unknown_parameter_far_from_all_gets_the_list():
    refused("known are", Parameters.from_dict, {"zzzzzz": 1})
    refused("unknown parameter 3", Parameters.from_dict, {3: 1})
    refused("not list", Parameters.from_dict, [])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("seed", "seed=)"),
        ("random_state", "--seed"),
        ("n_estimators", "num_boost_round"),
        ("n_jobs", "threads="),
        ("nthread", "threads="),
        ("tree_method", "leave it out"),
        ("booster", "leave it out"),
        ("device", "CPU"),
        ("verbosity", "--quiet"),
        ("missing", "NaN"),
    ],
)
def test_parameters_that_only_xgboost_has_are_errors_that_say_why(name, why):
    refused(why, Parameters.from_dict, {name: 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("learning_rate", "0.1"),
        ("learning_rate", True),
        ("max_depth", -1),
        ("max_depth", 2**31),
        ("max_depth", 6.0),
        ("max_depth", True),
        ("max_depth", np.True_),
        ("max_depth", "6"),
        ("max_depth", None),
        ("max_bin", 1),
        ("reg_lambda", -0.5),
        ("gamma", 10**400),
        ("min_child_weight", -1),
        ("objective", "binary:logit"),
        ("grad_bits", 12),
        ("grad_bits", 16.0),
        ("sketch", 1),
        ("zero_as_missing", 1),
        ("zero_as_missing", "true"),
        ("zero_as_missing", "auto"),
        ("zero_as_missing", "stored"),
        ("base_score", 0.0),
        ("base_score", 1.0),
        ("base_score", math.nan),
        ("eval_metric", "rmse"),
        ("eval_metric", "aux"),
        ("eval_metric", []),
        ("eval_metric", [1]),
    ],
)
def test_wrong_types_and_ranges_are_refused_by_name(name, value):
    refused(name, Parameters.from_dict, {name: value})
    refused(name, Parameters, **{name: value})


def test_a_refusal_says_what_is_accepted():
    refused("max_bin must be a whole number from 2 to 65536, not 1", Parameters, max_bin=1)
    refused("learning_rate must be a finite number above 0, not -1", Parameters, learning_rate=-1)
    refused("grad_bits must be one of 4, 8, 16, 32, not 12", Parameters, grad_bits=12)
    refused("zero_as_missing must be one of true, false, unstored, not 1", Parameters, zero_as_missing=1)


def test_numpy_scalars_become_plain_numbers():
    params = Parameters.from_dict(
        {
            "max_depth": np.int64(4),
            "eta": np.float32(0.5),
            "zero_as_missing": np.True_,
            "grad_bits": np.uint8(8),
        }
    )
    assert (params.max_depth, params.learning_rate, params.grad_bits) == (4, 0.5, 8)
    assert {type(params.max_depth), type(params.grad_bits)} == {int}
    assert type(params.learning_rate) is float
    assert params.zero_as_missing is True
    assert Parameters(zero_as_missing="unstored").zero_as_missing == "unstored"


def test_metrics_follow_the_objective():
    assert Parameters().metrics == ("auc", "logloss", "error")
    assert Parameters(objective="reg:squarederror").metrics == ("rmse", "mae")
    assert Parameters(eval_metric="logloss").metrics == ("logloss",)
    assert Parameters(eval_metric=["error", "auc", "error"]).metrics == ("error", "auc")


def test_base_score_of_a_regression_may_be_any_number_of_float32():
    for score in (-3, -3.4028234e38):
        assert Parameters(objective="reg:squarederror", base_score=score).base_score == score
    refused("base_score", Parameters, objective="reg:squarederror", base_score=3.4028236e38)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"eta": 0.1, "eval_metric": ["auc"], "base_score": 0.5},
        {"zero_as_missing": "unstored"},
        {"zero_as_missing": False},
    ],
)
def test_to_dict_goes_through_json_and_back(params):
    params = Parameters.from_dict(params)
    assert Parameters.from_dict(json.loads(json.dumps(params.to_dict()))) == params


# ---- run settings


def test_the_defaults_of_a_run():
    run = load_config(NEEDED, {})
    assert (run.data, run.model) == (Path("a.svm"), Path("m.json"))
    assert (run.grid, run.servers, run.transport, run.num_boost_round) == ((1, 1), 1, "tcp", 100)
    assert (run.seed, run.codec, run.index_base, run.n_features, run.quiet) == (0, "packed", 1, None, False)
    assert run.parameters == Parameters()
    assert run.evals == ()


@pytest.mark.parametrize(("text", "grid"), [("2x2", (2, 2)), ("1X16", (1, 16)), (" 3 x 4 ", (3, 4))])
def test_grids(text, grid):
    assert check_setting("grid", text) == grid
    assert TrainConfig(**NEEDED, grid=text).n_workers == grid[0] * grid[1]


@pytest.mark.parametrize(
    "text", ["0x2", "2x0", "-1x2", "2", "2x", "x2", "2x2x2", "", "2*2", "1.5x2", "twox2", "²x2"]
)
def test_grids_that_are_none(text):
    refused("such as 2x2, not", check_setting, "grid", text)


def test_a_setting_can_be_checked_without_a_run():
    assert config.check_setting("grid", (np.int64(2), 3)) == (2, 3)
    assert config.check_setting("servers", 4) == 4
    refused("servers must be", config.check_setting, "servers", 0)
    refused("grid must be", config.check_setting, "grid", (0, 1))
    refused("grid must be", config.check_setting, "grid", 4)
    refused("transport must be one of tcp, ipc, inproc, memory", config.check_setting, "transport", "udp")


@pytest.mark.parametrize("name", ["data", "model"])
def test_data_and_model_are_needed(name):
    refused(f"no {name} given", load_config, {**NEEDED, name: None}, {})


def test_a_run_is_checked_when_made_by_hand():
    refused("servers", TrainConfig, **NEEDED, servers=0)
    refused("parameters must be", TrainConfig, **NEEDED, parameters={"max_depth": 3})


# ---- layers


def test_flags_beat_environment_beats_toml_beats_defaults(tmp_path):
    run, parameters = "seed = 1\nservers = 2\nnum_boost_round = 3", "max_depth = 1\neta = 0.1\nmax_bin = 8"
    path = toml(tmp_path, f"{run}\n[parameters]\n{parameters}")
    environ = {"SERVERS": "4", "NUM_BOOST_ROUND": "5", "ETA": "0.2", "MAX_BIN": "16"}
    environ = {f"PSBOOST_{name}": value for name, value in environ.items()}
    flags = {**NEEDED, "num_boost_round": "7", "max_bin": "32", "grid": None}
    run = load_config(flags, environ, path)
    assert (run.grid, run.seed, run.servers, run.num_boost_round) == ((1, 1), 1, 4, 7)
    params = run.parameters
    assert (params.gamma, params.max_depth, params.learning_rate, params.max_bin) == (0.0, 1, 0.2, 32)


def test_text_from_the_environment_is_read_by_the_settings_kind():
    environ = {
        "PSBOOST_DATA": "a.svm",
        "PSBOOST_MODEL": "m.json",
        "PSBOOST_GRID": "2x3",
        "PSBOOST_EVAL": "test=t.svm,valid=v=1.svm",
        "PSBOOST_QUIET": "true",
        "PSBOOST_ZERO_AS_MISSING": "0",
        "PSBOOST_EVAL_METRIC": "auc,error",
        "PSBOOST_GRAD_BITS": "32",
        "PSBOOST_LAMBDA": "1e-3",
        "HOME": "/root",
    }
    run = load_config({}, environ)
    assert run.grid == (2, 3)
    assert run.evals == (("test", Path("t.svm")), ("valid", Path("v=1.svm")))
    assert run.quiet is True
    assert run.parameters == Parameters(
        zero_as_missing=False, eval_metric=("auc", "error"), grad_bits=32, reg_lambda=0.001
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [("true", True), ("1", True), (" False ", False), ("0", False), ("Unstored", "unstored"), ("auto", None)],
)
def test_the_rule_for_zeros_is_read(tmp_path, text, rule):
    path = toml(tmp_path, "[parameters]\nzero_as_missing = false")
    found = load_config(NEEDED, {"PSBOOST_ZERO_AS_MISSING": text}, path).parameters.zero_as_missing
    assert (type(found), found) == (type(rule), rule)
    flags = parser().parse_args(["a.svm", "--model", "m.json", "--zero-as-missing", text])
    assert config_from_args(flags, {}).parameters.zero_as_missing == rule


def test_the_rule_for_zeros_in_toml(tmp_path):
    for text, rule in (("true", True), ("false", False), ("'unstored'", "unstored")):
        path = toml(tmp_path, f"[parameters]\nzero_as_missing = {text}")
        assert load_config(NEEDED, {}, path).parameters.zero_as_missing == rule
    path = toml(tmp_path, "[parameters]\nzero_as_missing = 'true'")
    refused("zero_as_missing in [parameters] must be one of true, false, unstored, not", load_config, NEEDED, {}, path)


def test_auto_takes_an_optional_setting_back(tmp_path):
    path = toml(tmp_path, "n_features = 9\n[parameters]\nbase_score = 0.5\n")
    run = load_config({**NEEDED, "base_score": "auto"}, {"PSBOOST_N_FEATURES": "auto"}, path)
    assert (run.n_features, run.parameters.base_score) == (None, None)
    refused("--max-depth", load_config, {**NEEDED, "max_depth": "auto"}, {})


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("max_depth", "six", "--max-depth must be"),
        ("max_depth", "6.0", "--max-depth must be"),
        ("learning_rate", "nan", "--learning-rate must be"),
        ("grid", "0x1", "--grid must be"),
        ("evals", ["test"], "--eval must be NAME=DATA"),
        ("evals", ["a=b", "a=c"], "--eval must be NAME=DATA"),
        ("evals", ["=b"], "--eval must be NAME=DATA"),
        ("index_base", "2", "--index-base must be one of 0, 1"),
        ("zero_as_missing", "maybe", "--zero-as-missing must be one of true, false, unstored, not 'maybe'"),
        ("report", "", "--report must be"),
    ],
)
def test_a_wrong_flag_is_named(flag, value, message):
    refused(message, load_config, {**NEEDED, flag: value}, {})


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PSBOOST_MAX_DEPTH", "x", "PSBOOST_MAX_DEPTH in the environment must be"),
        ("PSBOOST_QUIET", "yes!", "PSBOOST_QUIET in the environment must be true or false"),
        ("PSBOOST_MAX_DEPHT", "6", "did you mean PSBOOST_MAX_DEPTH?"),
        ("PSBOOST_SERVER", "6", "did you mean PSBOOST_SERVERS?"),
        ("PSBOOST_N_JOBS", "6", "number of threads"),
        ("PSBOOST_GRID", "", "PSBOOST_GRID in the environment must be"),
    ],
)
def test_a_wrong_variable_is_named(variable, value, message):
    refused(message, load_config, NEEDED, {variable: value})


def test_variables_of_the_scripts_are_known():
    load_config(NEEDED, {name: "x" for name in config.ENVIRONMENT_ELSEWHERE})


def test_contradicting_aliases_in_the_environment():
    refused("same parameter", load_config, NEEDED, {"PSBOOST_ETA": "0.1", "PSBOOST_LEARNING_RATE": "0.2"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server = 2", "did you mean servers?"),
        ("evals = 2", "did you mean eval?"),
        ("max_depth = 2", "belongs in [parameters]"),
        ("eta = 0.1", "belongs in [parameters]"),
        ("max_dept = 2", "did you mean max_depth, in [parameters]?"),
        ("[parameters]\nmax_dept = 2", "did you mean max_depth?"),
        ("[parameters]\nservers = 2", "belongs above the first table"),
        ("[parameters]\nmax_depth = '2'", "max_depth in [parameters] must be"),
        ("[parameters]\neta = 0.1\nlearning_rate = 0.2", "same parameter"),
        ("[parameters]\ntree_method = 'hist'", "leave it out"),
        ("[parameter]\nmax_depth = 2", "did you mean parameters?"),
        ("parameters = 2", "must be a table"),
        ("eval = 'a.svm'", "must be a table"),
        ("[eval]\ntest = 2", "eval must be"),
        ("grid = '2'", "grid must be"),
        ("grid = 2x2", "is no TOML"),
        ("seed = true", "seed must be"),
    ],
)
def test_a_wrong_toml_names_the_file_and_the_key(tmp_path, text, message):
    path = toml(tmp_path, text)
    refused(message, load_config, NEEDED, {}, path)
    refused(str(path), load_config, NEEDED, {}, path)


def test_a_toml_that_is_not_there(tmp_path):
    refused("none.toml", load_config, NEEDED, {}, tmp_path / "none.toml")
    refused("cannot read", load_config, NEEDED, {}, tmp_path)


def test_toml_tables(tmp_path):
    run = load_config(NEEDED, {}, toml(tmp_path, 'grid = [2, 1]\n[eval]\ntest = "t.svm"\nvalid = "v.svm"\n'))
    assert run.grid == (2, 1)
    assert run.evals == (("test", Path("t.svm")), ("valid", Path("v.svm")))


def test_a_flag_that_is_no_setting_is_the_callers_mistake():
    with pytest.raises(TypeError, match="nonsense"):
        load_config({**NEEDED, "nonsense": 1}, {})


# ---- flags


def parser():
    made = argparse.ArgumentParser("psboost train", allow_abbrev=False)
    add_flags(made)
    return made


def test_flags_reach_the_run(tmp_path):
    path = toml(tmp_path, "servers = 3")
    line = (
        f"a.svm --model m.json --config {path} --grid 2x2 --eta 0.1 --lambda 2 --zero-as-missing false --quiet"
    )
    args = parser().parse_args([*line.split(), "--eval", "test=t.svm", "--eval", "valid=v.svm"])
    run = config_from_args(args, {})
    assert (run.grid, run.servers, run.quiet) == ((2, 2), 3, True)
    assert [name for name, _ in run.evals] == ["test", "valid"]
    assert run.parameters == Parameters(learning_rate=0.1, reg_lambda=2, zero_as_missing=False)


def test_the_configuration_may_come_from_the_environment(tmp_path):
    path = toml(tmp_path, "data = 'a.svm'\nmodel = 'm.json'\nseed = 5")
    assert config_from_args(parser().parse_args([]), {"PSBOOST_CONFIG": str(path)}).seed == 5
    with pytest.raises(ParameterError, match="PSBOOST_CONFIG in the environment must be the path of a file"):
        config_from_args(parser().parse_args([]), {"PSBOOST_CONFIG": ""})


def test_help_shows_every_setting_and_its_default():
    text = " ".join(parser().format_help().split())
    for name in [*settings.settings_of(TrainConfig), *settings.settings_of(Parameters)]:
        flag = {"data": "DATA", "evals": "--eval"}.get(name, "--" + name.replace("_", "-"))
        assert flag in text
    for default in ("(default: 1x1)", "(default: 0.3)", "(default: packed)", "(default: false)"):
        assert default in text
    assert text.index("run:") < text.index("--grid RxC row") < text.index("boosting parameters:")


# ---- files


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.name)
def test_every_configuration_of_the_project_loads(path):
    run = load_config(NEEDED, {}, path)
    assert run.grid != (1, 1)
    assert run.parameters.objective == "binary:logistic"


def test_the_papers_data_sets_have_their_configurations():
    n_features = {"url": 3_231_961, "avazu": 1_000_000, "rcv1": 47_236, "bosch": 968, "demo": None}
    for name, n in n_features.items():
        assert load_config(NEEDED, {}, ROOT / "configs" / f"{name}.toml").n_features == n


@pytest.mark.parametrize("module", [config, parameters, settings], ids=lambda module: module.__name__)
def test_config_imports_nothing_heavy(module):
    tree = ast.parse(Path(module.__file__).read_text())
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name in (
                "psboost.errors", "psboost.settings", "psboost.boosting.parameters", "psboost.roles.modes",
                "psboost.lab.hosts",
            ) or name.split(".")[0] in sys.stdlib_module_names
