package providers

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/nereid-serving/nereid/objectstore"
)

// writeKey writes a service account key with the given token URL and returns its path.
func writeKey(t *testing.T, tokens string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "reader@example", "private_key_id": "1", "token_uri": tokens,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// googleStore is a store that requires a token, and a server that issues tokens.
type googleStore struct {
	location objectstore.Location
	server   *httptest.Server
	valid    atomic.Value // the accepted token; "" accepts only requests without one
	given    atomic.Value // the issued token; "" refuses
	asked    atomic.Int32 // the number of token requests
}

func newGoogle(t *testing.T) *googleStore {
	t.Helper()
	g := &googleStore{}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token" || strings.HasSuffix(r.URL.Path, "/token"):
			g.asked.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Metadata-Flavor", "Google")
			if g.given.Load() == "" {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error": "invalid_grant", "error_description": "the account is gone"}`)
				return
			}
			fmt.Fprintf(w, `{"access_token": %q, "expires_in": 3600, "token_type": "Bearer"}`, g.given.Load())
		case strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") != g.valid.Load():
			Protocols[1].Refusal(w, http.StatusUnauthorized, "authError")
		default:
			_, _ = io.WriteString(w, Protocols[1].Page("f"))
		}
	}))
	t.Cleanup(g.server.Close)
	g.location = Locate(t, "gs", g.server.Listener.Addr().String())
	t.Setenv(gcsEmulator, "") // an emulator would get no token
	return g
}

// connect returns a client of the test's store.
func (g *googleStore) connect(_ context.Context, l objectstore.Location, c objectstore.Credential) (objectstore.Client, error) {
	client := connector{stallTime, mostReply}.connectGCS(l, c)
	client.endpoint = g.server.URL
	return client, nil
}

func (g *googleStore) open(t *testing.T) (objectstore.Bucket, error) {
	t.Helper()
	b, err := objectstore.NewOpener(os.Getenv, g.connect)(t.Context(), g.location)
	if err == nil {
		t.Cleanup(func() { _ = b.Close() })
	}
	return b, err
}

func TestKeysOfGoogle(t *testing.T) {
	g := newGoogle(t)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", writeKey(t, g.server.URL+"/token"))
	g.given.Store("one")
	g.valid.Store("one")
	b, err := g.open(t)
	if err != nil {
		t.Fatal(err)
	}
	List(t, b, "")
	List(t, b, "")
	if g.asked.Load() != 1 {
		t.Errorf("got %d tokens, want one that is kept", g.asked.Load())
	}
	g.valid.Store("two") // the cached token is revoked
	g.given.Store("two")
	List(t, b, "")
	if g.asked.Load() != 2 {
		t.Errorf("got %d tokens, want another one after a refusal", g.asked.Load())
	}
	g.valid.Store("three")
	g.given.Store("")
	err = b.List(t.Context(), "", func(objectstore.Object) error { return nil })
	if want := "Could not list contents of directory at gs://bucket : invalid_grant: the account is gone"; err == nil || err.Error() != want || !errors.Is(err, objectstore.ErrDenied) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestKeysOfGoogleThatCannotBeRead(t *testing.T) {
	g := newGoogle(t)
	g.valid.Store("one")
	path := filepath.Join(t.TempDir(), "key.json")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
	for content, want := range map[string]string{
		"":                            "no such file",
		"{":                           "is not JSON",
		`{"type": "SECRET"}`:          "has no key of a known kind",
		`{"type": "service_account"}`: "private key",
		`{"type": "external_account", "audience": "a", "subject_token_type": "t", "token_url": "https://sts.googleapis.com/v1/token", "credential_source": {"file": "` + path + `.SECRET"}}`: "the file with the key gives no token",
	} {
		_ = os.Remove(path)
		if content != "" {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := g.open(t)
		if err == nil || !strings.HasPrefix(err.Error(), "Unable to create GCS client. Check account credentials. (") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), path) {
			t.Errorf("%q: got %v, want …%s…", content, err, want)
		}
	}
}

// TestTokensThatHang checks that a call that waits for a token ends with its context.
func TestTokensThatHang(t *testing.T) {
	arrived, done := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-done
	}))
	defer server.Close()
	defer close(done)
	g := newGoogle(t)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", writeKey(t, server.URL))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := objectstore.NewOpener(os.Getenv, g.connect)(ctx, g.location)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestIdentityOfTheMachine(t *testing.T) {
	g := newGoogle(t)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(g.server.URL, "http://"))
	g.given.Store("machine")
	g.valid.Store("machine")
	b, err := g.open(t)
	if err != nil {
		t.Fatal(err)
	}
	List(t, b, "")
	if g.asked.Load() != 1 {
		t.Errorf("got %d tokens, want one", g.asked.Load())
	}
}

// TestRegionsAreFollowed checks that a client follows a redirect to the bucket's region, and
// rejects an invalid region name.
func TestRegionsAreFollowed(t *testing.T) {
	p := Protocols[0]
	var calls atomic.Int32
	region := "eu-west-1"
	l := Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if !strings.Contains(r.Header.Get("Authorization"), "/eu-west-1/s3/") {
			w.Header().Set("X-Amz-Bucket-Region", region)
			p.Refusal(w, http.StatusMovedPermanently, "PermanentRedirect")
			return
		}
		_, _ = io.WriteString(w, p.Page("f"))
	})
	open := func() (objectstore.Bucket, error) {
		return objectstore.NewOpener(os.Getenv, func(ctx context.Context, l objectstore.Location, c objectstore.Credential) (objectstore.Client, error) {
			client, err := Connect(ctx, l, c)
			if err == nil {
				client.(*s3Client).follow = true // as for Amazon's buckets
			}
			return client, err
		})(t.Context(), l)
	}
	b, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	List(t, b, "")
	if calls.Load() != 3 {
		t.Errorf("got %d calls, want one in the wrong region and two in the right one", calls.Load())
	}
	region = "evil.example/"
	if b, err := open(); err == nil {
		_ = b.Close()
		t.Error("a region that is no name is followed")
	}
}

// TestKeysThatXMLCannotCarry checks that listings are requested with URL-encoded keys.
func TestKeysThatXMLCannotCarry(t *testing.T) {
	p := Protocols[0]
	l := Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("encoding-type") != "url" {
			t.Errorf("got %s, want that keys are asked for encoded", r.URL)
		}
		_, _ = io.WriteString(w, p.Page("a%01b"))
	})
	err := Opened(t, l).List(t.Context(), "", func(o objectstore.Object) error {
		t.Errorf("got %+v", o)
		return nil
	})
	var refused *objectstore.RefusedError
	if !errors.As(err, &refused) || refused.Keys[0] != "a\x01b" {
		t.Errorf("got %v, want that the key is refused", err)
	}
}

func TestDirectoriesOfAzure(t *testing.T) {
	l := Serve(t, Protocols[2], func(w http.ResponseWriter, r *http.Request) {
		blob := func(name, more string) string {
			return `<Blob><Name>` + name + `</Name><Properties><Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified><Etag>v1</Etag><Content-Length>0</Content-Length>` + more + `</Blob>`
		}
		_, _ = io.WriteString(w, `<?xml version="1.0"?><EnumerationResults><Blobs>`+
			blob("a", `</Properties><Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>`)+
			blob("b", `<ResourceType>directory</ResourceType></Properties>`)+
			blob("c", `<ResourceType>file</ResourceType></Properties>`)+`</Blobs><NextMarker/></EnumerationResults>`)
	})
	got := List(t, Opened(t, l), "")
	if !got["a"].Directory || !got["b"].Directory || got["c"].Directory || len(got) != 3 {
		t.Errorf("got %+v, want a and b as directories", got)
	}
}

// TestTextsOfIdentitiesStayHere checks that errors never contain the output of credential programs,
// servers and files, which may be secret.
func TestTextsOfIdentitiesStayHere(t *testing.T) {
	reply := func(status int) *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error": "SECRET", "code": "the SECRET", "message": "SECRET"}`)
		}))
		t.Cleanup(server.Close)
		return server
	}
	write := func(content string) string {
		path := filepath.Join(t.TempDir(), "SECRET")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	noProgram := "[profile p]\ncredential_process = cat " + write(`{"Version": 1, "SecretAccessKey": "SECRET"`) + "\n"
	refusing := reply(http.StatusBadRequest)
	for _, test := range []struct {
		name, scheme string
		env          map[string]string
		want         string
	}{
		{"program", "s3", map[string]string{"AWS_PROFILE": "p", "AWS_CONFIG_FILE": write(noProgram)},
			`Exception: 'NoCredentials' Message: 'the credentials of profile "p" cannot be obtained: the program of credential_process fails, or prints something else than credentials'`},
		{"profile", "s3", map[string]string{"AWS_PROFILE": "q", "AWS_CONFIG_FILE": write(noProgram)},
			`Exception: 'InvalidConfiguration' Message: 'the profile "q" is in neither file of Amazon's configuration'`},
		{"role", "s3", map[string]string{"AWS_PROFILE": "p", "AWS_CONFIG_FILE": write("[profile p]\nrole_arn = SECRET\ncredential_source = SECRET\n")},
			`Exception: 'InvalidConfiguration' Message: 'a variable or a file of Amazon's configuration has a value that cannot be used'`},
		{"token's file", "s3", map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere/SECRET", "AWS_ROLE_ARN": "arn:aws:iam::1:role/a"},
			`Exception: 'NoCredentials' Message: 'the credentials of Amazon's configuration cannot be obtained'`},
		{"container", "s3", map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": refusing.URL},
			`Exception: 'NoCredentials' Message: 'the credentials of Amazon's configuration cannot be obtained`},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := Serve(t, Protocol{Scheme: test.scheme}, func(w http.ResponseWriter, r *http.Request) { t.Errorf("the store is asked: %s", r.URL) })
			t.Setenv("AWS_ACCESS_KEY_ID", "")
			t.Setenv("AZURE_STORAGE_KEY", "")
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			_, err := Open(t.Context(), l)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// machine is a transport that replies like a machine's identity service.
type machine struct{ asked []string } // the client_id of each request

func (m *machine) Do(r *http.Request) (*http.Response, error) {
	m.asked = append(m.asked, r.URL.Query().Get("client_id"))
	return &http.Response{StatusCode: http.StatusBadRequest, Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"error": "SECRET", "error_description": "SECRET"}`))}, nil
}

// TestIdentitiesByClientID checks which variable selects one of several identities of a machine.
// The variable of Azure's SDK works in the default chain.
func TestIdentitiesByClientID(t *testing.T) {
	l := Locate(t, "as", "127.0.0.1:1")
	t.Setenv("AZURE_CLIENT_ID", "of-the-sdk")
	t.Setenv("AZURE_STORAGE_AUTH_TYPE", "default")
	for _, test := range []struct{ own, want string }{{"", "of-the-sdk"}, {"own", "own"}} {
		t.Setenv("AZURE_STORAGE_CLIENT_ID", test.own)
		c, err := objectstore.Find(os.Getenv, l)
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{}
		identity, err := newIdentity(c, policy.ClientOptions{Transport: m, Retry: policy.RetryOptions{MaxRetries: -1}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = identity.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}})
		if err == nil || len(m.asked) == 0 || m.asked[0] != test.want {
			t.Errorf("with %q: asked for %q, %v; want %q", test.own, m.asked, err, test.want)
		}
		if cause := causeOfAzure(err); !errors.Is(cause, objectstore.ErrDenied) || strings.Contains(cause.Error(), "SECRET") {
			t.Errorf("got %v, want a refusal without the reply", cause)
		}
	}
}

// TestNoProxyForTheMachine checks that requests to a machine's identity service bypass proxies.
func TestNoProxyForTheMachine(t *testing.T) {
	proxy := pastMachine(func(r *http.Request) (*url.URL, error) { return r.URL, nil })
	for at, want := range map[string]bool{
		"http://169.254.169.254/latest": false, "http://169.254.170.2/v2": false, "http://[fd00:ec2::23]/v1": false, "http://metadata.google.internal/": false,
		"https://storage.googleapis.com/": true, "http://10.0.0.1:9000/bucket": true, "http://minio:9000/": true,
	} {
		r := httptest.NewRequest(http.MethodGet, at, nil)
		if got, err := proxy(r); err != nil || (got != nil) != want {
			t.Errorf("%s: got proxy %v, %v; want one: %v", at, got, err, want)
		}
	}
	// The clients' transports do so, too, whatever the environment says.
	k := connector{stallTime, mostReply}
	client, err := k.connectS3(t.Context(), Locate(t, "s3", "127.0.0.1:1"), objectstore.Credential{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, transport := range map[string]*http.Transport{"ours": k.newTransport(), "the SDK's": client.(*s3Client).transport} {
		if got, err := transport.Proxy(httptest.NewRequest(http.MethodGet, "http://169.254.169.254/", nil)); err != nil || got != nil {
			t.Errorf("%s: got proxy %v, %v", name, got, err)
		}
	}
}

// TestBucketsForAll checks that requests without credentials, as on a machine outside any cloud,
// are unsigned.
func TestBucketsForAll(t *testing.T) {
	p := Protocols[0]
	var private atomic.Bool
	l := Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "":
			t.Errorf("got a signature %s, want none", r.Header.Get("Authorization"))
		case private.Load():
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code></Error>")
		case IsListing(r):
			_, _ = io.WriteString(w, p.Page("f"))
		}
	})
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	b := Opened(t, l)
	if err := b.List(t.Context(), "", func(objectstore.Object) error { return nil }); err != nil {
		t.Errorf("a bucket for all: %v", err)
	}
	private.Store(true)
	err := b.List(t.Context(), "", func(objectstore.Object) error { return nil })
	if want := "NoCredentials, error message: no credentials were found, and the store answers AccessDenied to a request without a signature"; err == nil || !strings.HasSuffix(err.Error(), want) || !errors.Is(err, objectstore.ErrDenied) {
		t.Errorf("a private bucket: got %v, want …%s", err, want)
	}
	t.Setenv("AWS_PROFILE", "absent")
	if _, err := Open(t.Context(), l); err == nil || !strings.Contains(err.Error(), "profile") {
		t.Errorf("a profile that is named and is not there: got %v", err)
	}
}

// TestEndpointsOfModelsGetNoCredentials checks that requests to an endpoint that only a model names
// are unsigned, and that no credential program runs, whatever credentials the machine has.
func TestEndpointsOfModelsGetNoCredentials(t *testing.T) {
	p := Protocols[0]
	var private, signed atomic.Bool
	l := Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization")+r.Header.Get("X-Amz-Security-Token") != "" {
			signed.Store(true)
		}
		switch {
		case private.Load():
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code></Error>")
		case IsListing(r):
			_, _ = io.WriteString(w, p.Page("f"))
		}
	})
	ran := filepath.Join(t.TempDir(), "ran")
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("[default]\ncredential_process = touch "+ran+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SESSION_TOKEN", "the-token")
	t.Setenv("AWS_CONFIG_FILE", file)
	l.Named = false
	for range 2 { // with and without keys in the environment
		private.Store(false)
		b := Opened(t, l)
		if err := b.List(t.Context(), "", func(objectstore.Object) error { return nil }); err != nil || signed.Load() {
			t.Errorf("a bucket for all: %v, signed %v", err, signed.Load())
		}
		private.Store(true)
		err := b.List(t.Context(), "", func(objectstore.Object) error { return nil })
		const want = "a model names the endpoint, and neither --model-repository, TRITON_CLOUD_CREDENTIAL_PATH nor AWS_ENDPOINT_URL does, and the store answers AccessDenied to a request without a signature"
		if err == nil || !strings.HasSuffix(err.Error(), want) || signed.Load() {
			t.Errorf("a private bucket: got %v, signed %v, want …%s", err, signed.Load(), want)
		}
		t.Setenv("AWS_ACCESS_KEY_ID", "")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the program of a credential_process has run")
	}
}

// azureIdentities is a container that requires a token, and the identity service that Azure
// provides to apps and containers.
type azureIdentities struct {
	location objectstore.Location
	status   atomic.Int32 // of the service's replies
	token    atomic.Value // the issued token
	valid    atomic.Value // the accepted token
	asked    atomic.Int32 // the number of token requests
	client   atomic.Value // the client_id of the latest request
}

func newAzureIdentities(t *testing.T) *azureIdentities {
	t.Helper()
	a := &azureIdentities{}
	a.status.Store(http.StatusOK)
	a.token.Store("one")
	a.valid.Store("one")
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.asked.Add(1)
		a.client.Store(r.URL.Query().Get("client_id"))
		if r.URL.Path != "/msi/token" || r.Header.Get("X-Identity-Header") != "SECRET" || r.URL.Query().Get("resource") != "https://storage.azure.com" {
			t.Errorf("the service is asked %s with %v", r.URL, r.Header)
		}
		w.WriteHeader(int(a.status.Load()))
		if a.status.Load() != http.StatusOK {
			_, _ = io.WriteString(w, `{"error": "SECRET", "error_description": "SECRET"}`)
			return
		}
		fmt.Fprintf(w, `{"access_token": %q, "expires_on": "4102444800", "resource": "https://storage.azure.com", "token_type": "Bearer"}`, a.token.Load())
	}))
	t.Cleanup(service.Close)
	p := Protocols[2]
	a.location = Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+a.valid.Load().(string) {
			p.Refusal(w, http.StatusForbidden, "AuthorizationPermissionMismatch")
			return
		}
		_, _ = io.WriteString(w, p.Page("f"))
	})
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("IDENTITY_ENDPOINT", service.URL+"/msi/token")
	t.Setenv("IDENTITY_HEADER", "SECRET")
	return a
}

// TestIdentitiesOfApps requests tokens from IDENTITY_ENDPOINT, which App Service, Functions and
// Container Apps provide.
func TestIdentitiesOfApps(t *testing.T) {
	for _, test := range []struct{ kind, variable string }{{"managed_identity", "AZURE_STORAGE_CLIENT_ID"}, {"default", "AZURE_STORAGE_CLIENT_ID"}, {"default", "AZURE_CLIENT_ID"}} {
		t.Run(test.kind+" "+test.variable, func(t *testing.T) {
			a := newAzureIdentities(t)
			client := newClientID(t)
			t.Setenv("AZURE_STORAGE_AUTH_TYPE", test.kind)
			t.Setenv(test.variable, client)
			List(t, Opened(t, a.location), "")
			if a.asked.Load() != 1 || a.client.Load() != client {
				t.Errorf("the service was asked %d times, for %q; want once, for %q", a.asked.Load(), a.client.Load(), client)
			}
		})
	}
}

// newClientID returns an unused client_id, because Azure's SDK caches tokens per process.
func newClientID(t *testing.T) string {
	t.Helper()
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// TestIdentitiesOfAppsThatFail checks that errors name the cause: the identity service, the
// container or the endpoint.
func TestIdentitiesOfAppsThatFail(t *testing.T) {
	set := func(name, value string) func(*testing.T, *azureIdentities) {
		return func(t *testing.T, _ *azureIdentities) { t.Setenv(name, value) }
	}
	for name, test := range map[string]struct {
		change func(*testing.T, *azureIdentities)
		want   string
		asked  bool
	}{
		"refused":     {func(_ *testing.T, a *azureIdentities) { a.status.Store(http.StatusBadRequest) }, "(AuthenticationFailed: the service of identities gives no token: it answers 400 Bad Request)", true},
		"no rights":   {func(_ *testing.T, a *azureIdentities) { a.valid.Store("other") }, "(AuthorizationPermissionMismatch: Forbidden)", true},
		"no service":  {set("IDENTITY_ENDPOINT", "http://127.0.0.1:1/msi/token"), "(AuthenticationFailed: the service of identities gives no token)", false},
		"no HTTPS":    {set(azureEndpoint, "http://store.example"), "(InsecureEndpoint: the token of an identity is sent by HTTPS alone, and AZURE_STORAGE_SERVICE_ENDPOINT names an endpoint without it)", false},
		"looks local": {set(azureEndpoint, "http://127.0.0.1.example"), "(InsecureEndpoint: ", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAzureIdentities(t)
			t.Setenv("AZURE_STORAGE_AUTH_TYPE", "managed_identity")
			t.Setenv("AZURE_STORAGE_CLIENT_ID", newClientID(t))
			test.change(t, a)
			b, err := Open(t.Context(), a.location)
			if err == nil {
				_ = b.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "Unable to create Azure filesystem client. Check account credentials. "+test.want) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if (a.asked.Load() > 0) != test.asked {
				t.Errorf("the service was asked %d times", a.asked.Load())
			}
		})
	}
}
