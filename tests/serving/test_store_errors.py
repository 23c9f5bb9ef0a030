"""Which errors of MLflow and of an object store say that something is not there, and which say nothing."""

import errno

import pytest
import requests
from botocore.exceptions import ClientError, EndpointConnectionError
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, TEMPORARILY_UNAVAILABLE

from feature_store.errors import AssayError, UnavailableError
from serving.registry import store_errors


def answered(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("of a proxied artifact", response=response)


def of_s3(status: int) -> ClientError:
    return ClientError({"Error": {"Code": str(status)}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")


def of_mlflow(context: Exception) -> MlflowException:
    """As its client makes one of what requests raises."""
    made = MlflowException(f"API request failed with exception {context}")
    made.__context__ = context
    return made


@pytest.mark.parametrize("error", [
    requests.ConnectionError("refused"), answered(502), answered(403), of_s3(503), of_s3(403),
    EndpointConnectionError(endpoint_url="http://s3"), of_mlflow(requests.ConnectionError("refused")),
    MlflowException("its database is away", TEMPORARILY_UNAVAILABLE)], ids=repr)
def test_a_service_that_does_not_answer_is_unavailable(error: Exception) -> None:
    with pytest.raises(UnavailableError, match=r"^registry must answer, got .* \(here\); the same command goes on"):
        with store_errors("answer", "here"):
            raise error


def test_one_that_answers_with_errors_alone_is_asked_for_its_database() -> None:
    with pytest.raises(UnavailableError, match="is the database up"), store_errors("answer", "here"):
        raise of_mlflow(requests.exceptions.RetryError("too many 503 error responses"))


@pytest.mark.parametrize("error", [
    answered(404), answered(413), of_s3(404), of_s3(400), MlflowException("none of that name", RESOURCE_DOES_NOT_EXIST),
    OSError(errno.ENOSPC, "No space left on device")], ids=repr)
def test_an_answer_is_one_also_where_it_is_no(error: Exception) -> None:
    with pytest.raises(AssayError) as caught, store_errors("answer", "here"):
        raise error
    assert type(caught.value) is AssayError
