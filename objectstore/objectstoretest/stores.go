package objectstoretest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// Variable is the environment variable with the directory of the programs.
const Variable = "NEREID_TEST_STORES"

const patience = 30 * time.Second // of a store's start

// Store is a store that runs.
type Store struct {
	// Address is its host:port, Bucket the only bucket, of which URL is the URL of a repository,
	// without a path.
	Address, Bucket, URL string
	// Environment is what its readers need, as NAME: value.
	Environment map[string]string
	put         func(t testing.TB, key, content string)
	drop        func(t testing.TB, key string)
	end         func()
	client      *http.Client
}

// End kills the store, before the test does at its end.
func (s *Store) End() { s.end() }

// Put writes an object, over another one with that key.
func (s *Store) Put(t testing.TB, key, content string) {
	t.Helper()
	s.put(t, key, content)
}

// Drop removes an object.
func (s *Store) Drop(t testing.TB, key string) {
	t.Helper()
	s.drop(t, key)
}

// Writer says how objects get into a store that wants signatures for it, such as Azure's.
func (s *Store) Writer(put func(t testing.TB, key, content string), drop func(t testing.TB, key string)) {
	s.put, s.drop = put, drop
}

func (s *Store) do(t testing.TB, method, at, content string) {
	t.Helper()
	if err := s.try(method, at, content); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) try(method, at, content string) error {
	request, err := http.NewRequest(method, at, strings.NewReader(content))
	if err != nil {
		return err
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: got %s: %.300s", method, at, response.Status, text)
	}
	return err
}

// The keys that S3 wants of readers.
const (
	KeyID     = "reader"
	SecretKey = "a+secret/of=readers"
)

const identities = `{"identities": [
 {"name": "anonymous", "actions": ["Admin:models", "Write"]},
 {"name": "reader", "credentials": [{"accessKey": "` + KeyID + `", "secretKey": "` + SecretKey + `"}], "actions": ["Read", "List"]}
]}`

// S3 starts SeaweedFS with a bucket.
func S3(t testing.TB) *Store {
	t.Helper()
	program := find(t, "weed")
	directory := t.TempDir()
	config := filepath.Join(directory, "s3.json")
	if err := os.WriteFile(config, []byte(identities), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testkit.Ports(t, 8)
	s := newStore(t, fmt.Sprintf("127.0.0.1:%d", p[0]), "models")
	s.URL = "s3://" + s.Address + "/" + s.Bucket
	s.Environment = map[string]string{"AWS_ACCESS_KEY_ID": KeyID, "AWS_SECRET_ACCESS_KEY": SecretKey, "AWS_EC2_METADATA_DISABLED": "true"}
	at := func(key string) string { return "http://" + s.Address + "/" + s.Bucket + "/" + escape(key) }
	s.Writer(func(t testing.TB, key, content string) { s.do(t, http.MethodPut, at(key), content) },
		func(t testing.TB, key string) { s.do(t, http.MethodDelete, at(key), "") })
	s.end = start(t, directory, program, "-v=0", "server", "-s3", "-ip=127.0.0.1", "-dir="+directory, "-s3.config="+config, "-volume.max=8", "-master.volumeSizeLimitMB=64",
		fmt.Sprintf("-s3.port=%d", p[0]), fmt.Sprintf("-s3.port.grpc=%d", p[1]), "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false",
		fmt.Sprintf("-master.port=%d", p[2]), fmt.Sprintf("-master.port.grpc=%d", p[3]), fmt.Sprintf("-volume.port=%d", p[4]), fmt.Sprintf("-volume.port.grpc=%d", p[5]),
		fmt.Sprintf("-filer.port=%d", p[6]), fmt.Sprintf("-filer.port.grpc=%d", p[7]))
	// Without a place for bytes a PUT waits for half a minute: the master is asked for one first.
	s.await(t, func() error {
		return s.try(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/dir/assign?collection=%s", p[2], s.Bucket), "")
	})
	s.await(t, func() error { return s.try(http.MethodPut, "http://"+s.Address+"/"+s.Bucket, "") })
	s.await(t, func() error { return s.try(http.MethodPut, at("first"), "x") }) // which makes a volume
	s.Drop(t, "first")
	return s
}

// GCS starts fake-gcs-server with a bucket. It asks for no token.
func GCS(t testing.TB) *Store {
	t.Helper()
	program := find(t, "fake-gcs-server")
	p := testkit.Ports(t, 1)
	s := newStore(t, fmt.Sprintf("127.0.0.1:%d", p[0]), "models")
	s.URL = "gs://" + s.Bucket
	s.Environment = map[string]string{"STORAGE_EMULATOR_HOST": s.Address}
	api := "http://" + s.Address + "/%sstorage/v1/b/" + s.Bucket + "/o%s"
	s.Writer(func(t testing.TB, key, content string) {
		s.do(t, http.MethodPost, fmt.Sprintf(api, "upload/", "?uploadType=media&name="+url.QueryEscape(key)), content)
	}, func(t testing.TB, key string) {
		s.do(t, http.MethodDelete, fmt.Sprintf(api, "", "/"+url.PathEscape(key)), "")
	})
	s.end = start(t, t.TempDir(), program, "-scheme=http", "-host=127.0.0.1", fmt.Sprintf("-port=%d", p[0]), "-backend=memory", "-public-host="+s.Address, "-log-level=error")
	s.await(t, func() error {
		return s.try(http.MethodPost, "http://"+s.Address+"/storage/v1/b?project=p", `{"name": "`+s.Bucket+`"}`)
	})
	return s
}

// The account of Azurite.
const (
	AzureAccount = "devstoreaccount1"
	AzureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azure starts Azurite, which has no container: it refuses writes without a signature.
func Azure(t testing.TB) *Store {
	t.Helper()
	program := find(t, "azurite-blob")
	p := testkit.Ports(t, 1)
	s := newStore(t, fmt.Sprintf("127.0.0.1:%d", p[0]), "models")
	s.URL = "as://" + AzureAccount + "/" + s.Bucket
	s.Environment = map[string]string{"AZURE_STORAGE_KEY": AzureKey, "AZURE_STORAGE_SERVICE_ENDPOINT": "http://" + s.Address + "/" + AzureAccount}
	s.end = start(t, t.TempDir(), program, "--blobHost", "127.0.0.1", "--blobPort", fmt.Sprint(p[0]), "--inMemoryPersistence", "--silent", "--disableTelemetry")
	s.await(t, func() error {
		conn, err := net.Dial("tcp", s.Address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return s
}

func newStore(t testing.TB, address, bucket string) *Store {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &Store{Address: address, Bucket: bucket, client: &http.Client{Transport: transport, Timeout: patience}}
}

// await retries a request until the store accepts it.
func (s *Store) await(t testing.TB, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the store at %s is not there after %v: %v", s.Address, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// find returns the path of a program, or skips the test.
func find(t testing.TB, name string) string {
	t.Helper()
	directory := os.Getenv(Variable)
	if directory == "" {
		t.Skipf("%s is not set: make stores sets it", Variable)
	}
	path := filepath.Join(directory, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && name == "azurite-blob" {
		t.Skipf("%s is not there: where there is npm, make stores AZURITE=1 installs it", path)
	} else if err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs a program until the test ends or end is called. If the test has failed, its last words
// are in the log.
func start(t testing.TB, directory, program string, args ...string) (end func()) {
	t.Helper()
	var output bytes.Buffer
	command := exec.Command(program, args...)
	command.Dir, command.Stdout, command.Stderr = directory, &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	t.Cleanup(func() {
		end()
		if text := output.String(); t.Failed() {
			t.Logf("%s: %s", filepath.Base(program), text[max(0, len(text)-2000):])
		}
	})
	return end
}

func escape(key string) string {
	components := strings.Split(key, "/")
	for i, c := range components {
		components[i] = url.PathEscape(c)
	}
	return strings.Join(components, "/")
}
