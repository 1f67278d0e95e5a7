package providers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/nereid-serving/nereid/objectstore"
)

// anyRegion is the region of a location with its own endpoint, and the first try elsewhere.
const anyRegion = "us-east-1"

type s3Client struct {
	client      *s3.Client
	bucket      string
	credentials aws.CredentialsProvider
	profile     string // that the operator names
	asksSums    bool   // requests for objects ask for their checksums; a variable or a file may turn it off for old servers
	anonymous   bool   // requests go without a signature, since the operator does not name the endpoint
	unnamed     bool   // nothing names credentials: the identity of the machine is the last source, and may give none
	transport   *http.Transport
	follow      bool                   // the store may name another region
	region      atomic.Pointer[string] // that it has named
	signed      atomic.Bool            // credentials have been found
	unsigned    atomic.Bool            // no credentials: requests go without a signature
}

func (k connector) connectS3(ctx context.Context, l objectstore.Location, c objectstore.Credential) (objectstore.Client, error) {
	// The SDK's own kind of client, since AWS_CA_BUNDLE is added to no other.
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			made := k.newTransport()
			t.Proxy = made.Proxy
			t.DialContext, t.IdleConnTimeout, t.DisableCompression = made.DialContext, made.IdleConnTimeout, made.DisableCompression
			t.MaxResponseHeaderBytes, t.MaxIdleConnsPerHost = made.MaxResponseHeaderBytes, made.MaxIdleConnsPerHost
		})),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithLogger(logging.Nop{}),
	}
	switch {
	case c.Anonymous:
		options = append(options, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	case c.KeyID != "":
		options = append(options, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(c.KeyID, c.SecretKey, c.SessionToken)))
	}
	if c.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(c.Profile))
	}
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, objectstore.Cause{Reason: objectstore.ErrDenied, Name: "InvalidConfiguration", Message: whyNoConfiguration(err)}
	}
	if cfg.Region == "" {
		cfg.Region = anyRegion
	}
	made, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return nil, fmt.Errorf("the SDK has a %T, want an *http.BuildableClient", cfg.HTTPClient)
	}
	transport := made.GetTransport()
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient, o.UsePathStyle = bounded{transport, min(k.reply, mostS3Reply), mostS3Marks}.client(), true
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired // package objectstore compares it, over bodies that were resumed too
		if l.Endpoint != "" {
			o.BaseEndpoint = aws.String(l.Endpoint)
		}
	})
	connected := &s3Client{
		client: client, bucket: l.Bucket, anonymous: c.Anonymous, credentials: cfg.Credentials, profile: c.Profile, transport: transport, follow: l.Endpoint == "" && cfg.BaseEndpoint == nil,
		asksSums: cfg.ResponseChecksumValidation != aws.ResponseChecksumValidationWhenRequired,
		unnamed:  c.Profile == "" && aws.IsCredentialsProvider(cfg.Credentials, (*ec2rolecreds.Provider)(nil)),
	}
	connected.unsigned.Store(c.Anonymous)
	return connected, nil
}

func (c *s3Client) Close() { c.transport.CloseIdleConnections() }

func (c *s3Client) Page(ctx context.Context, prefix, from string, most int) ([]objectstore.Entry, string, error) {
	// Encoded: XML cannot carry every key.
	input := &s3.ListObjectsV2Input{Bucket: &c.bucket, Prefix: &prefix, MaxKeys: aws.Int32(int32(most)), EncodingType: types.EncodingTypeUrl}
	if from != "" {
		input.ContinuationToken = &from
	}
	output, err := ask(ctx, c, func(o func(*s3.Options)) (*s3.ListObjectsV2Output, error) {
		return c.client.ListObjectsV2(ctx, input, o)
	})
	if err != nil {
		return nil, "", err
	}
	page := make([]objectstore.Entry, 0, len(output.Contents)) // bound: mostS3Reply
	for _, o := range output.Contents {
		key := aws.ToString(o.Key)
		if output.EncodingType == types.EncodingTypeUrl {
			if key, err = url.QueryUnescape(key); err != nil { // bound: mostS3Reply
				return nil, "", objectstore.Cause{Reason: objectstore.ErrUnreachable, Name: "MalformedListing", Message: "a key is not encoded as a URL"}
			}
		}
		page = append(page, objectstore.Entry{Key: key, Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified), Version: aws.ToString(o.ETag)})
	}
	next := aws.ToString(output.NextContinuationToken)
	switch {
	case !aws.ToBool(output.IsTruncated):
		return page, "", nil
	case next == "": // of a server that knows the first version of listings alone: what follows would count as deleted
		return nil, "", objectstore.Cause{Reason: objectstore.ErrUnreachable, Name: "MalformedListing", Message: "the listing is truncated and names no next page"}
	}
	return page, next, nil
}

func (c *s3Client) Read(ctx context.Context, key string, o objectstore.Object, offset int64) (io.ReadCloser, error) {
	ctx = context.WithValue(ctx, streamed{}, true)
	input := &s3.GetObjectInput{Bucket: &c.bucket, Key: &key}
	if o.Version != "" {
		input.IfMatch = &o.Version
	}
	if offset > 0 {
		input.Range = aws.String(fmt.Sprintf("bytes=%d-", offset))
	}
	output, err := ask(ctx, c, func(f func(*s3.Options)) (*s3.GetObjectOutput, error) {
		return c.client.GetObject(ctx, input, f, c.askSum)
	})
	if err != nil {
		return nil, err
	}
	if etag := aws.ToString(output.ETag); etag != "" && o.Version != "" && etag != o.Version { // of a server that does not know If-Match
		_ = output.Body.Close()
		return nil, objectstore.Cause{Reason: objectstore.ErrChanged, Name: "PreconditionFailed", Message: "the object has another ETag than the listing"}
	}
	if offset > 0 || output.ChecksumType == types.ChecksumTypeComposite {
		return output.Body, nil
	}
	return withAnySum(output.Body, map[string]string{
		"crc32": aws.ToString(output.ChecksumCRC32), "crc32c": aws.ToString(output.ChecksumCRC32C), "crc64nvme": aws.ToString(output.ChecksumCRC64NVME),
		"md5": aws.ToString(output.ChecksumMD5), "sha1": aws.ToString(output.ChecksumSHA1), "sha256": aws.ToString(output.ChecksumSHA256),
		"sha512": aws.ToString(output.ChecksumSHA512),
	}), nil
}

// ask makes one call, and a second one if the store names another region.
func ask[T any](ctx context.Context, c *s3Client, do func(func(*s3.Options)) (T, error)) (T, error) {
	if err := c.identify(ctx); err != nil {
		var none T
		return none, err
	}
	result, err := do(c.options)
	if err == nil {
		return result, nil
	}
	var response *awshttp.ResponseError
	if c.follow && errors.As(err, &response) && response.Response != nil {
		region, known := response.Response.Header.Get("X-Amz-Bucket-Region"), c.region.Load()
		if isRegion(region) && (known == nil || *known != region) {
			c.region.Store(&region)
			if result, err = do(c.options); err == nil {
				return result, nil
			}
		}
	}
	cause := causeOfS3(err)
	if c.unsigned.Load() && errors.Is(cause.Reason, objectstore.ErrDenied) {
		why := "no credentials were found"
		if c.anonymous {
			why = "a model names the endpoint, and neither --model-repository, TRITON_CLOUD_CREDENTIAL_PATH nor AWS_ENDPOINT_URL does"
		}
		cause.Name, cause.Message = noCredentials, why+", and the store answers "+cause.Name+" to a request without a signature"
	}
	return result, cause
}

// noCredentials is the name of the error for missing credentials.
const noCredentials = "NoCredentials"

// identify checks that there are credentials, or decides to send requests without. A client that
// has had some does not fall back: if a machine's service fails once, the store would refuse
// everything. If the store refuses an unsigned request, another client is made, which asks for
// credentials again.
func (c *s3Client) identify(ctx context.Context) error {
	if c.unsigned.Load() {
		return nil
	}
	// Asked for by itself, since the SDK's errors do not say that it was this that failed. It is kept
	// until it expires.
	_, err := c.credentials.Retrieve(ctx)
	switch {
	case err == nil:
		c.signed.Store(true)
		return nil
	case c.unnamed && !c.signed.Load() && ctx.Err() == nil:
		c.unsigned.Store(true)
		return nil
	}
	return objectstore.Cause{Reason: objectstore.ErrDenied, Name: noCredentials, Message: c.whyNoCredentials(err)}
}

// whyNoConfiguration explains why Amazon's files and variables make no configuration. The SDK's
// texts quote them.
func whyNoConfiguration(err error) string {
	var missing config.SharedConfigProfileNotExistError
	var unread config.SharedConfigLoadError
	switch {
	case errors.As(err, &missing):
		return fmt.Sprintf("the profile %q is in neither file of Amazon's configuration", missing.Profile)
	case errors.As(err, &unread):
		return "a file of Amazon's configuration cannot be read"
	}
	return "a variable or a file of Amazon's configuration has a value that cannot be used"
}

// whyNoCredentials explains why there are no credentials. The SDK's texts may quote a program's
// output, or a server's reply.
func (c *s3Client) whyNoCredentials(err error) string {
	text := "the credentials of Amazon's configuration cannot be obtained"
	if c.profile != "" {
		text = fmt.Sprintf("the credentials of profile %q cannot be obtained", c.profile)
	}
	var program *processcreds.ProviderError
	var api smithy.APIError
	var response *smithyhttp.ResponseError
	var network *net.OpError
	switch {
	case errors.As(err, &program):
		return text + ": the program of credential_process fails, or prints something else than credentials"
	case errors.As(err, &network):
		return text + ": the service that gives them cannot be reached"
	case errors.As(err, &api) && isWord(api.ErrorCode()):
		return text + ": the service that gives them answers " + api.ErrorCode()
	case errors.As(err, &response):
		return fmt.Sprintf("%s: the service that gives them answers %d", text, response.HTTPStatusCode())
	}
	return text
}

// isWord reports whether an error's name is short and consists of letters.
func isWord(name string) bool {
	return name != "" && len(name) < 64 && !strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
}

// isRegion reports whether a region can become part of a host's name.
func isRegion(name string) bool {
	return name != "" && len(name) < 64 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// askSum makes a request for an object ask for its checksum. With the SDK's own field the SDK would
// also compare it.
func (c *s3Client) askSum(o *s3.Options) {
	if c.asksSums {
		o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue("X-Amz-Checksum-Mode", "ENABLED")) // bound: the options of one call
	}
}

// options sets the options of a call.
func (c *s3Client) options(o *s3.Options) {
	if c.unsigned.Load() {
		o.Credentials = nil
	}
	if region := c.region.Load(); region != nil {
		o.Region = *region
	}
}

// deniedByName are refusals of credentials that have status 400.
var deniedByName = map[string]bool{"ExpiredToken": true, "InvalidToken": true, "TokenRefreshRequired": true}

func causeOfS3(err error) objectstore.Cause {
	var own objectstore.Cause
	if errors.As(err, &own) {
		return own
	}
	var response *awshttp.ResponseError
	if !errors.As(err, &response) || response.Response == nil || response.HTTPStatusCode() < 300 {
		return broken(err)
	}
	cause := objectstore.Cause{Reason: reasonOf(response.HTTPStatusCode()), Name: http.StatusText(response.HTTPStatusCode()), Message: "the store gives no reason"}
	var api smithy.APIError
	if errors.As(err, &api) {
		cause.Name = api.ErrorCode()
		if message := api.ErrorMessage(); message != "" {
			cause.Message = message
		}
	}
	if deniedByName[cause.Name] {
		cause.Reason = objectstore.ErrDenied
	}
	return cause
}
