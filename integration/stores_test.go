package integration

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/objectstore/objectstoretest"
)

// numberedModel returns a number plus the one in a file beside it. It prints the directory of its
// copy.
func numberedModel(number int) string {
	return fmt.Sprintf(`
import numpy as np
import triton_python_backend_utils as pb_utils
from . import beside


class TritonPythonModel:
    def initialize(self, args):
        print("COPY", args["model_repository"], args["model_version"], flush=True)

    def execute(self, requests):
        answer = np.array([%d + beside.MORE], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", answer)]) for _ in requests]
`, number)
}

const numberedConfig = `
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]
`

// TestServedFromGCS serves a repository from a server with Google's API, changes it, and stops the
// store. The server must follow the changes and continue without the store.
func TestServedFromGCS(t *testing.T) {
	store := objectstoretest.GCS(t)
	for name, value := range store.Environment {
		t.Setenv(name, value)
	}
	mounts := t.TempDir()
	t.Setenv("TRITON_GCS_MOUNT_DIRECTORY", mounts)
	put := func(model string, number int) {
		store.Put(t, path.Join("team/models", model, "1/beside.py"), "MORE = 1000\n")
		store.Put(t, path.Join("team/models", model, "1/model.py"), numberedModel(number))
		store.Put(t, path.Join("team/models", model, "config.pbtxt"), numberedConfig)
	}
	put("first", 1)
	put("second", 2)
	s := start(t, testkit.Python(t).Path, store.URL+"/team/models", "--model-control-mode=poll", "--repository-poll-secs=1")
	s.wantNumber("first", 0, 1001)
	s.wantNumber("second", 0, 1002)
	if !s.prints("COPY " + mounts + "/") {
		t.Errorf("the copies do not lie in %s", mounts)
	}

	put("first", 3)
	put("third", 4)
	for _, file := range []string{"config.pbtxt", "1/model.py", "1/beside.py"} {
		store.Drop(t, path.Join("team/models/second", file))
	}
	s.until("as the store", func() bool {
		third, _, _ := s.number("third", 0)
		second, _, _ := s.number("second", 0)
		_, first, _ := s.number("first", 0)
		return first == 1003 && second != http.StatusOK && third == http.StatusOK
	})
	s.wantNumber("third", 0, 1004)

	store.End()
	failures := `nereid_repository_failures_total{repository="` + store.URL + `/team/models"} `
	s.until("without a store", func() bool {
		page := s.scrape()
		return strings.Contains(page, failures) && !strings.Contains(page, failures+"0\n")
	})
	s.wantNumber("first", 0, 1003)
	s.wantNumber("third", 0, 1004)
}

// TestStoresThatRefuse checks that startup fails with Triton's error for a wrong key or a missing
// bucket, and that the log does not contain the key.
func TestStoresThatRefuse(t *testing.T) {
	store := objectstoretest.S3(t)
	for name, value := range store.Environment {
		t.Setenv(name, value)
	}
	for _, test := range []struct{ name, secret, url, want string }{
		{"wrong key", "a-wrong-key", store.URL, "error: creating server: Internal - Unable to create S3 filesystem client. Check account credentials. Exception: 'SignatureDoesNotMatch' Message: '"},
		{"no bucket", objectstoretest.SecretKey, "s3://" + store.Address + "/nothing", "error: creating server: Internal - Unable to create S3 filesystem client. Check account credentials. Exception: 'NoSuchBucket' Message: '"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("AWS_SECRET_ACCESS_KEY", test.secret)
			s := launch(t, testkit.Python(t).Path, test.url)
			if status := s.wait(startLimit); status != 1 || !s.prints(test.want) || strings.Contains(s.log.String(), test.secret) {
				t.Errorf("got exit status %d and\n%s\nwant 1 and %s", status, s.log, test.want)
			}
		})
	}
}
