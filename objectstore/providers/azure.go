package providers

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/nereid-serving/nereid/objectstore"
)

// azureEndpoint is the environment variable, known from Azure's command line, that replaces
// https://ACCOUNT.blob.core.windows.net: for sovereign clouds, private endpoints and emulators.
const azureEndpoint = "AZURE_STORAGE_SERVICE_ENDPOINT"

type azureClient struct {
	container *container.Client
	transport *http.Transport
}

func (k connector) connectAzure(l objectstore.Location, c objectstore.Credential) (objectstore.Client, error) {
	transport := k.newTransport()
	options := policy.ClientOptions{Transport: k.newClient(transport), Retry: policy.RetryOptions{MaxRetries: -1}}
	account := c.Account
	if account == "" {
		account = l.Account
	}
	endpoint := strings.TrimRight(os.Getenv(azureEndpoint), "/")
	if endpoint == "" {
		if !objectstore.IsAzureAccount(account) {
			return nil, objectstore.Cause{Reason: objectstore.ErrDenied, Name: "InvalidAccount", Message: "the name of an account has letters, digits and '-' alone"}
		}
		endpoint = "https://" + account + ".blob.core.windows.net"
	}
	if usesIdentity(c) && !strings.HasPrefix(endpoint, "https://") {
		// The SDK refuses it as well, in the same form as an identity that is not there. Emulators and
		// sidecars of this machine may read the token.
		if !isLoopback(endpoint) {
			return nil, objectstore.Cause{Reason: objectstore.ErrDenied, Name: "InsecureEndpoint", Message: "the token of an identity is sent by HTTPS alone, and " + azureEndpoint + " names an endpoint without it"}
		}
		options.InsecureAllowCredentialWithHTTP = true
	}
	at := endpoint + "/" + url.PathEscape(l.Bucket) // bound: the text of a location
	client, err := newContainer(at, account, c, &container.ClientOptions{ClientOptions: options})
	if err != nil {
		cause := objectstore.Cause{Reason: objectstore.ErrDenied, Name: "InvalidCredential", Message: "the endpoint or the credentials are not valid"}
		if base64 := base64.CorruptInputError(0); errors.As(err, &base64) {
			cause.Message = "the key of the account is not base64"
		}
		return nil, cause
	}
	return &azureClient{container: client, transport: transport}, nil
}

func newContainer(at, account string, c objectstore.Credential, options *container.ClientOptions) (*container.Client, error) {
	switch {
	case usesIdentity(c):
		identity, err := newIdentity(c, options.ClientOptions)
		if err != nil {
			return nil, err
		}
		return container.NewClient(at, identity, options)
	case c.AccountKey != "":
		key, err := container.NewSharedKeyCredential(account, c.AccountKey)
		if err != nil {
			return nil, err
		}
		return container.NewClientWithSharedKeyCredential(at, key, options)
	}
	return container.NewClientWithNoCredential(at, options)
}

// usesIdentity reports whether requests carry a token.
func usesIdentity(c objectstore.Credential) bool {
	return c.AuthType == "managed_identity" || c.AuthType == "default"
}

// isLoopback reports whether a URL has a loopback address.
func isLoopback(at string) bool {
	parsed, err := url.Parse(at)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(parsed.Hostname())
	return err == nil && address.IsLoopback()
}

// newIdentity makes the source of tokens. The chain of "default" leaves out developers' tools,
// which the SDK would start through a shell.
func newIdentity(c objectstore.Credential, options policy.ClientOptions) (azcore.TokenCredential, error) {
	managedOptions := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
	if c.ClientID != "" {
		managedOptions.ID = azidentity.ClientID(c.ClientID)
	}
	managed, err := azidentity.NewManagedIdentityCredential(managedOptions)
	if err != nil || c.AuthType == "managed_identity" {
		return managed, err
	}
	var chain []azcore.TokenCredential
	// Each of the two fails at once if its environment variables are missing.
	if identity, err := azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: options}); err == nil {
		chain = append(chain, identity)
	}
	if identity, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: options}); err == nil {
		chain = append(chain, identity)
	}
	return azidentity.NewChainedTokenCredential(append(chain, managed), nil)
}

func (c *azureClient) Close() { c.transport.CloseIdleConnections() }

func (c *azureClient) Page(ctx context.Context, prefix, from string, most int) ([]objectstore.Entry, string, error) {
	limit := int32(most)
	options := &container.ListBlobsFlatOptions{Prefix: &prefix, MaxResults: &limit, Include: container.ListBlobsInclude{Metadata: true}}
	if from != "" {
		options.Marker = &from
	}
	output, err := c.container.NewListBlobsFlatPager(options).NextPage(ctx)
	if err != nil {
		return nil, "", causeOfAzure(err)
	}
	var page []objectstore.Entry // bound: mostReply
	if output.Segment != nil {
		for _, item := range output.Segment.BlobItems {
			if item == nil || item.Name == nil || item.Properties == nil {
				continue
			}
			e := objectstore.Entry{Key: *item.Name, Directory: isDirectory(item)}
			if p := item.Properties; p.ContentLength != nil && p.LastModified != nil && p.ETag != nil {
				e.Size, e.Modified, e.Version = *p.ContentLength, *p.LastModified, string(*p.ETag)
			}
			page = append(page, e)
		}
	}
	next := ""
	if output.NextMarker != nil {
		next = *output.NextMarker
	}
	return page, next, nil
}

// isDirectory recognises the directories of accounts with real ones, whose names do not end in a
// slash.
func isDirectory(item *container.BlobItem) bool {
	if kind := item.Properties.ResourceType; kind != nil && *kind == "directory" {
		return true
	}
	for name, value := range item.Metadata {
		if strings.EqualFold(name, "hdi_isfolder") && value != nil && *value == "true" {
			return true
		}
	}
	return false
}

func (c *azureClient) Read(ctx context.Context, key string, o objectstore.Object, offset int64) (io.ReadCloser, error) {
	ctx = context.WithValue(ctx, streamed{}, true)
	options := &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: offset}}
	if o.Version != "" {
		etag := azcore.ETag(o.Version)
		options.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}}
	}
	output, err := c.container.NewBlobClient(key).DownloadStream(ctx, options)
	if err != nil {
		return nil, causeOfAzure(err)
	}
	if offset > 0 {
		return output.Body, nil
	}
	sum := base64.StdEncoding.EncodeToString(output.ContentMD5) // bound: a header
	return withAnySum(output.Body, map[string]string{"md5": sum}), nil
}

func causeOfAzure(err error) objectstore.Cause {
	var own objectstore.Cause
	var response *azcore.ResponseError
	var identity *azidentity.AuthenticationFailedError
	var unavailable interface{ NonRetriable() } // azidentity's error for a missing identity
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &identity):
		return objectstore.Cause{Reason: objectstore.ErrDenied, Name: "AuthenticationFailed", Message: whyNoToken(identity)}
	case errors.As(err, &response):
		// Its text has the URL and all headers of the reply.
		cause := objectstore.Cause{Reason: reasonOf(response.StatusCode), Name: response.ErrorCode, Message: http.StatusText(response.StatusCode)}
		if cause.Name == "" {
			cause.Name = "HTTPError"
		}
		return cause
	case errors.As(err, &unavailable):
		return objectstore.Cause{Reason: objectstore.ErrDenied, Name: "NoCredentials", Message: "neither the environment nor the pod nor the machine has an identity"}
	}
	return broken(err)
}

// whyNoToken returns only the status: the SDK's text has the whole reply.
func whyNoToken(err *azidentity.AuthenticationFailedError) string {
	if err.RawResponse == nil {
		return "the service of identities gives no token"
	}
	return fmt.Sprintf("the service of identities gives no token: it answers %d %s", err.RawResponse.StatusCode, http.StatusText(err.RawResponse.StatusCode))
}
