package providers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/nereid-serving/nereid/objectstore"
)

const (
	gcsEndpoint = "https://storage.googleapis.com"
	gcsScope    = "https://www.googleapis.com/auth/devstorage.read_only"
	// gcsEmulator is the environment variable, known to all clients of Google's, that names an
	// emulator. It gets no token.
	gcsEmulator = "STORAGE_EMULATOR_HOST"
)

// gcsClient speaks the JSON API. Google's own client links gRPC's service mesh: half a server's
// worth of code.
type gcsClient struct {
	client    *http.Client
	transport *http.Transport
	endpoint  string
	bucket    string
	tokens    *googleTokens // nil: no token is sent
}

func (k connector) connectGCS(l objectstore.Location, c objectstore.Credential) *gcsClient {
	transport := k.newTransport()
	g := &gcsClient{client: k.newClient(transport), transport: transport, endpoint: gcsEndpoint, bucket: l.Bucket}
	if emulator := os.Getenv(gcsEmulator); emulator != "" {
		if !strings.Contains(emulator, "://") {
			emulator = "http://" + emulator
		}
		g.endpoint = strings.TrimRight(emulator, "/")
		return g
	}
	g.tokens = &googleTokens{file: c.File, client: g.client}
	return g
}

func (c *gcsClient) Close() { c.transport.CloseIdleConnections() }

// listing is a page of the API. 64-bit numbers are strings.
type listing struct {
	Next  string `json:"nextPageToken"`
	Items []struct {
		Name       string    `json:"name"`
		Size       string    `json:"size"`
		Generation string    `json:"generation"`
		Updated    time.Time `json:"updated"`
	} `json:"items"`
}

// bound: mostReply
func (c *gcsClient) Page(ctx context.Context, prefix, from string, most int) ([]objectstore.Entry, string, error) {
	query := url.Values{"maxResults": {strconv.Itoa(most)}, "fields": {"nextPageToken,items(name,size,generation,updated)"}}
	if prefix != "" {
		query.Set("prefix", prefix)
	}
	if from != "" {
		query.Set("pageToken", from)
	}
	response, err := c.get(ctx, c.endpoint+"/storage/v1/b/"+url.PathEscape(c.bucket)+"/o?"+query.Encode(), 0)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	var l listing
	if err := json.NewDecoder(response.Body).Decode(&l); err != nil {
		return nil, "", broken(err)
	}
	page := make([]objectstore.Entry, 0, len(l.Items))
	for _, item := range l.Items {
		size, err := strconv.ParseInt(item.Size, 10, 64)
		if err != nil {
			return nil, "", objectstore.Cause{Reason: objectstore.ErrUnreachable, Name: "MalformedListing", Message: fmt.Sprintf("the size of an object is %q", item.Size)}
		}
		page = append(page, objectstore.Entry{Key: item.Name, Size: size, Modified: item.Updated, Version: item.Generation})
	}
	return page, l.Next, nil
}

// bound: a key, and the text of a location
func (c *gcsClient) Read(ctx context.Context, key string, o objectstore.Object, offset int64) (io.ReadCloser, error) {
	query := url.Values{"alt": {"media"}}
	if o.Version != "" {
		query.Set("ifGenerationMatch", o.Version)
	}
	at := c.endpoint + "/download/storage/v1/b/" + url.PathEscape(c.bucket) + "/o/" + url.PathEscape(key) + "?" + query.Encode()
	response, err := c.get(context.WithValue(ctx, streamed{}, true), at, offset)
	if err != nil {
		return nil, err
	}
	if got := response.Header.Get("X-Goog-Generation"); got != "" && o.Version != "" && got != o.Version { // of a server that does not know the condition
		_ = response.Body.Close()
		return nil, objectstore.Cause{Reason: objectstore.ErrChanged, Name: "Precondition Failed", Message: "the object has another generation than the listing"}
	}
	if offset > 0 {
		return response.Body, nil
	}
	return withAnySum(response.Body, googleSums(response.Header)), nil
}

// googleSums are the checksums of a whole object as stored, by kind.
func googleSums(h http.Header) map[string]string {
	sums := make(map[string]string) // bound: the headers of a reply, MaxResponseHeaderBytes
	for _, line := range h.Values("X-Goog-Hash") {
		for part := range strings.SplitSeq(line, ",") {
			kind, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			sums[kind] = value
		}
	}
	return sums
}

// get requests a URL from an offset on. The caller closes the body.
func (c *gcsClient) get(ctx context.Context, at string, offset int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, broken(err)
	}
	request.Header.Set("Accept-Encoding", "gzip") // otherwise the store decompresses objects
	if offset > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	if c.tokens != nil {
		token, err := c.tokens.now(ctx)
		if err != nil {
			return nil, err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
	}
	response, err := c.client.Do(request)
	switch {
	case err != nil:
		return nil, broken(err)
	case response.StatusCode == http.StatusOK && offset == 0, response.StatusCode == http.StatusPartialContent && offset > 0:
		return response, nil
	}
	defer response.Body.Close()
	return nil, causeOfGCS(response)
}

// bound: 64 KiB of the reply
func causeOfGCS(response *http.Response) objectstore.Cause {
	cause := objectstore.Cause{Reason: reasonOf(response.StatusCode), Name: http.StatusText(response.StatusCode), Message: "the store gives no reason"}
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return cause
	}
	var reply struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &reply) == nil && reply.Error.Message != "" {
		cause.Message = reply.Error.Message
	} else if len(text) > 0 && strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") {
		cause.Message = strings.TrimSpace(string(text))
	}
	return cause
}

// googleTokens fetches tokens, one at a time, and keeps each until shortly before it expires.
type googleTokens struct {
	file   string // a key; "" is the machine's identity, or none
	client *http.Client

	mu      sync.Mutex
	token   string
	expires time.Time // zero: there is no token yet
}

const tokenMargin = time.Minute

// now returns a token; "" if this machine has none: the bucket may be public. Goroutines that find
// it expired at the same time fetch one each.
func (t *googleTokens) now(ctx context.Context) (string, error) {
	t.mu.Lock()
	token, valid := t.token, time.Until(t.expires) > tokenMargin
	t.mu.Unlock()
	if valid {
		return token, nil
	}
	token, expires, err := t.fetch(ctx)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token, t.expires = token, expires
	return token, nil
}

func (t *googleTokens) fetch(ctx context.Context) (string, time.Time, error) {
	if t.file == "" {
		return t.ofMachine(ctx)
	}
	key, err := os.ReadFile(t.file) // bound: the operator's file
	if err != nil {
		return "", time.Time{}, objectstore.Cause{Reason: objectstore.ErrDenied, Name: "NoCredentials", Message: "the file with the key cannot be read: " + errnoOf(err)}
	}
	var kind struct {
		Type google.CredentialsType `json:"type"`
	}
	if err := json.Unmarshal(key, &kind); err != nil { // bound: the operator's file
		return "", time.Time{}, objectstore.Cause{Reason: objectstore.ErrDenied, Name: "InvalidCredentials", Message: "the file with the key is not JSON"}
	}
	// The source made here gets one token. It passes no context to its requests: the client does.
	client := &http.Client{Transport: called{ctx, t.client.Transport}, CheckRedirect: t.client.CheckRedirect}
	made, err := google.CredentialsFromJSONWithType(context.WithValue(ctx, oauth2.HTTPClient, client), key, kind.Type, gcsScope)
	if err != nil {
		return "", time.Time{}, objectstore.Cause{Reason: objectstore.ErrDenied, Name: "InvalidCredentials", Message: "the file with the key has no key of a known kind"}
	}
	token, err := made.TokenSource.Token()
	if err != nil {
		return "", time.Time{}, causeOfToken(err, kind.Type)
	}
	return token.AccessToken, token.Expiry, nil
}

// called gives requests the context of the call that they are made for.
type called struct {
	ctx  context.Context
	base http.RoundTripper
}

func (c called) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.base.RoundTrip(r.WithContext(c.ctx))
}

// errnoOf returns the reason of a failed system call without the path.
func errnoOf(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	return "it is not a file"
}

// causeOfToken shows a token server's own reason for a refusal, and no other text: with federated
// identities other texts may contain a program's output, or a file's path.
func causeOfToken(err error, kind google.CredentialsType) objectstore.Cause {
	var refused *oauth2.RetrieveError
	var unanswered *url.Error
	switch {
	case errors.As(err, &unanswered):
		return broken(err)
	case !errors.As(err, &refused) || refused.Response == nil:
		message := "the file with the key gives no token"
		if kind == google.ServiceAccount {
			message = "the private key of the file cannot be read: want RSA in PEM"
		}
		return objectstore.Cause{Reason: objectstore.ErrDenied, Name: "InvalidCredentials", Message: message}
	}
	var reply struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	// bound: mostReply
	if err := json.Unmarshal(refused.Body, &reply); err != nil || reply.Error == "" {
		reply.Error, reply.Description = http.StatusText(refused.Response.StatusCode), "the server of tokens gives no reason"
	}
	reason := objectstore.ErrDenied
	if refused.Response.StatusCode >= 500 {
		reason = objectstore.ErrUnreachable
	}
	return objectstore.Cause{Reason: reason, Name: reply.Error, Message: reply.Description}
}

// ofMachine asks the metadata server of Google's machines and pods.
func (t *googleTokens) ofMachine(ctx context.Context) (string, time.Time, error) {
	server := metadata.NewClient(t.client)
	if !server.OnGCEWithContext(ctx) {
		return "", time.Now().Add(time.Hour), nil
	}
	text, err := server.GetWithContext(ctx, "instance/service-accounts/default/token?scopes="+url.QueryEscape(gcsScope))
	var missing metadata.NotDefinedError
	if errors.As(err, &missing) { // a machine without a service account
		return "", time.Now().Add(time.Hour), nil
	}
	var refused *metadata.Error
	if errors.As(err, &refused) { // its text has the whole reply
		return "", time.Time{}, objectstore.Cause{Reason: objectstore.ErrUnreachable, Name: "NoCredentials", Message: fmt.Sprintf("the metadata server answers %d %s", refused.Code, http.StatusText(refused.Code))}
	}
	if err != nil {
		return "", time.Time{}, broken(err)
	}
	var reply struct {
		Token   string `json:"access_token"`
		Seconds int    `json:"expires_in"`
	}
	// bound: mostReply
	if err := json.Unmarshal([]byte(text), &reply); err != nil || reply.Token == "" {
		return "", time.Time{}, objectstore.Cause{Reason: objectstore.ErrDenied, Name: "InvalidCredentials", Message: "the metadata server's reply has no token"}
	}
	return reply.Token, time.Now().Add(time.Duration(reply.Seconds) * time.Second), nil
}
