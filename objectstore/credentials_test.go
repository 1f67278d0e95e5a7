package objectstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/objectstore"
)

type environment map[string]string

func (e environment) get(name string) string { return e[name] }

func parse(t *testing.T, url string) objectstore.Location {
	t.Helper()
	l, cloud, err := objectstore.Parse(url)
	if err != nil || !cloud {
		t.Fatalf("%q: cloud %v, error %v", url, cloud, err)
	}
	return l
}

func TestCredentialsOfTheEnvironment(t *testing.T) {
	for _, test := range []struct {
		name, url string
		env       environment
		want      objectstore.Credential
	}{
		{"none", "s3://b", environment{}, objectstore.Credential{}},
		{"keys", "s3://b", environment{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "token", "AWS_DEFAULT_REGION": "eu-west-1", "AWS_PROFILE": "p"},
			objectstore.Credential{KeyID: "id", SecretKey: "key", SessionToken: "token", Region: "eu-west-1"}},
		{"half a key is none", "s3://b", environment{"AWS_ACCESS_KEY_ID": "id", "AWS_SESSION_TOKEN": "token", "AWS_PROFILE": "p"}, objectstore.Credential{Profile: "p"}},
		{"profile", "s3://b", environment{"AWS_PROFILE": "p", "AWS_DEFAULT_REGION": "r"}, objectstore.Credential{Profile: "p", Region: "r"}},
		{"file of Google", "gs://b", environment{"GOOGLE_APPLICATION_CREDENTIALS": "/k.json", "AWS_PROFILE": "p"}, objectstore.Credential{File: "/k.json"}},
		{"key of Azure", "as://a/c", environment{"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": "k"}, objectstore.Credential{Account: "other", AccountKey: "k"}},
		{"identity of Azure", "as://a/c", environment{"AZURE_STORAGE_AUTH_TYPE": "managed_identity", "AZURE_STORAGE_CLIENT_ID": "c"}, objectstore.Credential{AuthType: "managed_identity", ClientID: "c"}},
		{"identity of Azure's chain", "as://a/c", environment{"AZURE_STORAGE_AUTH_TYPE": "default", "AZURE_CLIENT_ID": "sdk"}, objectstore.Credential{AuthType: "default", ClientID: "sdk"}},
		{"Triton's before the chain's", "as://a/c", environment{"AZURE_STORAGE_AUTH_TYPE": "default", "AZURE_STORAGE_CLIENT_ID": "c", "AZURE_CLIENT_ID": "sdk"}, objectstore.Credential{AuthType: "default", ClientID: "c"}},
		{"a managed identity has Triton's alone", "as://a/c", environment{"AZURE_STORAGE_AUTH_TYPE": "managed_identity", "AZURE_CLIENT_ID": "sdk"}, objectstore.Credential{AuthType: "managed_identity"}},
	} {
		got, err := objectstore.Find(test.env.get, parse(t, test.url))
		if err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v; want %+v", test.name, describe(got), err, describe(test.want))
		}
	}
}

// describe shows all fields of a Credential, including those that its String method hides.
func describe(c objectstore.Credential) string {
	return fmt.Sprint(c.KeyID, c.SecretKey, c.SessionToken, c.Region, c.Profile, c.File, c.Account, c.AuthType, c.AccountKey, c.ClientID)
}

const credentialFile = `{
 "s3": {
  "": {"secret_key": "all", "key_id": "i"},
  "s3://bucket": {"secret_key": "bucket", "key_id": "i", "region": "r", "session_token": "t"},
  "s3://bucket/models/a": {"secret_key": "longer", "key_id": "i"},
  "s3://host:9000/b": {"profile": "p", "key_id": "half"}
 },
 "gs": {"gs://bucket-1": "/one.json", "gs://bucket-10": "/ten.json"},
 "as": {"": {"account_str": "acc", "account_key": "k", "auth_type": "default", "client_id": "c"}}
}`

func TestCredentialsOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials.json")
	if err := os.WriteFile(path, []byte(credentialFile), 0o600); err != nil {
		t.Fatal(err)
	}
	// With a credential file, the other variables are ignored.
	env := environment{objectstore.CredentialFile: path, "AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "env", "GOOGLE_APPLICATION_CREDENTIALS": "/env.json"}
	for _, test := range []struct {
		url  string
		want objectstore.Credential
		err  string
	}{
		{"s3://elsewhere/models", objectstore.Credential{SecretKey: "all", KeyID: "i"}, ""},
		{"s3://bucket/models", objectstore.Credential{SecretKey: "bucket", KeyID: "i", Region: "r", SessionToken: "t"}, ""},
		{"s3://bucket/models/abc", objectstore.Credential{SecretKey: "longer", KeyID: "i"}, ""}, // prefixes compare text, not path components
		{"s3://http://host:9000/b", objectstore.Credential{SecretKey: "all", KeyID: "i"}, ""},   // matched as the user wrote it
		{"s3://host:9000/b/m", objectstore.Credential{Profile: "p"}, ""},
		{"gs://bucket-10/m", objectstore.Credential{File: "/ten.json"}, ""},
		{"gs://bucket-12/m", objectstore.Credential{File: "/one.json"}, ""},
		{"gs://else", objectstore.Credential{}, "Not found: Cannot match credential for path  gs://else"},
		{"as://a/c", objectstore.Credential{Account: "acc", AccountKey: "k", AuthType: "default", ClientID: "c"}, ""},
	} {
		l := parse(t, test.url)
		l.Named = true
		got, err := objectstore.Find(env.get, l)
		if test.err != "" {
			if err == nil || infer.AsError(err).Status() != test.err || !errors.Is(err, objectstore.ErrDenied) {
				t.Errorf("%s: got error %v, want %s", test.url, err, test.err)
			}
		} else if err != nil || got != test.want {
			t.Errorf("%s: got %s, %v; want %s", test.url, describe(got), err, describe(test.want))
		}
	}
}

// TestCredentialsOfEndpointsThatModelsName checks that credentials go to an endpoint from a model
// only if the operator has also named that endpoint.
func TestCredentialsOfEndpointsThatModelsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials.json")
	const file = `{"s3": {"": {"profile": "all"}, "s3://": {"profile": "all"}, "s3://host:9000": {"profile": "one"}, "s3://http://host": {"profile": "prefix"}, "s3://https://host:9000/b": {"profile": "bucket"}}}`
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := environment{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "token", "AWS_PROFILE": "p"}
	profile := environment{"AWS_PROFILE": "p"}
	with := func(name, value string) environment { return environment{"AWS_PROFILE": "p", name: value} }
	for _, test := range []struct {
		env  environment
		url  string
		want objectstore.Credential
		err  string
	}{
		{keys, "s3://http://host:9000/b", objectstore.Credential{Anonymous: true}, ""},
		{profile, "s3://host:9000/b", objectstore.Credential{Anonymous: true}, ""},
		{profile, "s3://bucket/b", objectstore.Credential{Profile: "p"}, ""}, // Amazon's endpoint
		{with("AWS_ENDPOINT_URL", "http://HOST:9000/"), "s3://host:9000/b", objectstore.Credential{Profile: "p"}, ""},
		{with("AWS_ENDPOINT_URL_S3", "https://host:9000"), "s3://https://host:9000/b", objectstore.Credential{Profile: "p"}, ""},
		{with("AWS_ENDPOINT_URL", "http://host:900"), "s3://host:9000/b", objectstore.Credential{Anonymous: true}, ""},
		{with(objectstore.CredentialFile, path), "s3://bucket/b", objectstore.Credential{Profile: "all"}, ""},
		{with(objectstore.CredentialFile, path), "s3://host:9000/b", objectstore.Credential{Profile: "one"}, ""},
		{with(objectstore.CredentialFile, path), "s3://https://host:9000/b/x", objectstore.Credential{Profile: "bucket"}, ""},
		{with(objectstore.CredentialFile, path), "s3://http://host:9000/b", objectstore.Credential{}, "Cannot match credential"},
		{with(objectstore.CredentialFile, path), "s3://http://host.evil:9000/b", objectstore.Credential{}, "Cannot match credential"},
		{with(objectstore.CredentialFile, path), "s3://host:90001/b", objectstore.Credential{}, "Cannot match credential"},
	} {
		got, err := objectstore.Find(test.env.get, parse(t, test.url))
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s with %v: got %s, %v, anonymous %v; want %s, %v", test.url, test.env, describe(got), err, got.Anonymous, describe(test.want), test.err)
		}
	}
}

func TestCredentialFilesThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials.json")
	env := environment{objectstore.CredentialFile: path}
	for content, want := range map[string]string{
		"":                                 "read the cloud credentials that TRITON_CLOUD_CREDENTIAL_PATH names: no such file or directory",
		"{":                                "read the cloud credentials of " + path + ": unexpected end of JSON input",
		`{"s3": []}`:                       "read the cloud credentials of " + path + ": json: cannot unmarshal array",
		`{"s3": {"": "SECRET"}}`:           `read the cloud credentials of ` + path + `, member "s3": want an object whose members are strings`,
		`{"s3": {"": {"key_id": 123456}}}`: `read the cloud credentials of ` + path + `, member "s3": want an object whose members are strings`,
		`{"S3": {"": {}}}`:                 "Cannot match credential for path  s3://bucket",
		`{"s3": {"s3://other": {}}}`:       "Cannot match credential for path  s3://bucket",
		strings.Repeat(" ", 1<<20+1):       "read the cloud credentials that TRITON_CLOUD_CREDENTIAL_PATH names: it has more than 1048576 bytes",
	} {
		if content != "" {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			_ = os.Remove(path)
		}
		_, err := objectstore.Find(env.get, parse(t, "s3://bucket"))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%.30q: got %v, want %s", content, err, want)
		}
	}
}

func TestCredentialsAreNotPrinted(t *testing.T) {
	c := objectstore.Credential{SecretKey: "SECRET", AccountKey: "SECRET", SessionToken: "SECRET"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, c) + fmt.Sprintf(format, &c); strings.Contains(text, "SECRET") {
			t.Errorf("%s shows %s", format, text)
		}
	}
}
