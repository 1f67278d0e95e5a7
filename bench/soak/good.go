package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// answerLimit is how long a good request may wait for its answer.
const answerLimit = 60 * time.Second

// goodClient sends valid requests, and knows the answers.
type goodClient struct {
	name  string
	count int
	mean  time.Duration // between requests
	// connect opens a connection. The function ask makes one or more requests on it, and returns an
	// answerError if the server answered one of them with an error.
	connect func(k *soak) (ask func(ctx context.Context, r *rand.Rand) error, closed func(), err error)
}

// answerError is an error reply of the server.
type answerError struct {
	code int // of HTTP; those of gRPC are translated
	text string
}

func (e *answerError) Error() string { return strconv.Itoa(e.code) + ": " + e.text }

func (k *soak) goodClients() []goodClient {
	var all []goodClient
	for protocol, connect := range map[string]func(*soak) (asker, error){"HTTP": connectHTTP, "gRPC": connectGRPC} {
		add := func(model string, count int, mean time.Duration, ask func(a asker, ctx context.Context, r *rand.Rand) error) {
			all = append(all, goodClient{protocol + " " + model, count, mean,
				func(k *soak) (func(context.Context, *rand.Rand) error, func(), error) {
					a, err := connect(k)
					if err != nil {
						return nil, nil, err
					}
					return func(ctx context.Context, r *rand.Rand) error { return ask(a, ctx, r) }, a.close, nil
				}})
		}
		add("identity", 2, 20*time.Millisecond, askIdentity)
		add("doubles", 4, 10*time.Millisecond, askFactor("doubles", 2, true))
		add("asks", 2, 20*time.Millisecond, askFactor("asks", 4, false))
		add("chain", 2, 20*time.Millisecond, askFactor("chain", 4, true))
		add("crashes", 2, 20*time.Millisecond, askFactor("crashes", 1, false))
		add("sleeps", 1, 20*time.Millisecond, askSleeps)
		add("moves", 1, 20*time.Millisecond, askFactor("moves", 1, false))
		add("direct", 2, 10*time.Millisecond, askSequence("direct"))
		add("oldest", 2, 10*time.Millisecond, askSequence("oldest"))
	}
	all = append(all, goodClient{"gRPC counts", 2, 50 * time.Millisecond, connectStream})
	return all
}

// askOften runs a good client. It reconnects now and then.
func (k *soak) askOften(ctx context.Context, r *rand.Rand, c goodClient) {
	for ctx.Err() == nil {
		ask, closed, err := c.connect(k)
		if err != nil {
			k.results.answered(c.name, wrong, "connect: "+err.Error())
			return
		}
		for range 20 + r.IntN(200) {
			// The end of the run does not cancel the request, because it must get its answer.
			asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerLimit)
			err := ask(asking, r)
			cancel()
			select {
			case <-k.server.Ended():
				closed()
				return
			default:
			}
			o, text := judge(c.name, err)
			k.results.answered(c.name, o, text)
			if !pause(ctx, r, c.mean) {
				break
			}
		}
		closed()
	}
}

// Errors of requests inside a lost process, of requests of a sequence whose state was in it, and of
// requests for a model that is not loaded at the moment.
var (
	lostText = regexp.MustCompile(`Stub process '\w+' is not healthy\.|must specify the START flag on the first request of the sequence$`)
	// A model repeats the error of its own request.
	withinText = regexp.MustCompile(`^doubles: (request needs|no memory|the server is short)`)
	absentText = regexp.MustCompile(`^Request for unknown model: 'moves' (is not found|has no available versions)$`)
)

// judge classifies the result of a request. The text is empty for a correct answer.
func judge(client string, err error) (outcome, string) {
	var answered *answerError
	switch {
	case err == nil:
		return right, ""
	case !errors.As(err, &answered):
		return wrong, digits.ReplaceAllString(err.Error(), "N")
	}
	text := digits.ReplaceAllString(answered.Error(), "N")
	switch {
	case lostText.MatchString(answered.text):
		return lost, text
	case answered.code == http.StatusServiceUnavailable, withinText.MatchString(answered.text):
		return refused, text
	case absentText.MatchString(answered.text):
		return absent, text
	}
	return wrong, text
}

var digits = regexp.MustCompile(`\d+`)

// asker sends requests over one connection. Its methods return an answerError for an error reply.
type asker interface {
	// infer sends one tensor and returns the tensor of the reply.
	infer(ctx context.Context, q question) ([]byte, error)
	close()
}

// question is a request with one input.
type question struct {
	model      string
	dataType   string
	shape      []int64
	data       []byte
	sequence   uint64 // 0: none
	start, end bool
	text       bool // over HTTP: the tensors are JSON instead of bytes
}

func numbers(q question, values ...int32) question {
	q.dataType = "INT32"
	for _, v := range values {
		q.data = binary.LittleEndian.AppendUint32(q.data, uint32(v))
	}
	return q
}

func number(data []byte) (int32, error) {
	if len(data) != 4 {
		return 0, fmt.Errorf("the answer has %d bytes, want 4", len(data))
	}
	return int32(binary.LittleEndian.Uint32(data)), nil
}

// askIdentity sends data of many sizes, on average 20 KiB and now and then 2 MiB.
func askIdentity(a asker, ctx context.Context, r *rand.Rand) error {
	size := 1 + r.IntN(40<<10)
	if r.IntN(20) == 0 {
		size = 1 + r.IntN(4<<20)
	}
	data := make([]byte, size)
	for i := 0; i < len(data); i += 1 + r.IntN(1<<10) {
		data[i] = byte(r.Uint32())
	}
	got, err := a.infer(ctx, question{model: "identity", dataType: "UINT8", shape: []int64{int64(size)}, data: data})
	if err == nil && !bytes.Equal(got, data) {
		err = fmt.Errorf("identity: %d bytes came back changed, for %d", len(got), size)
	}
	return err
}

// askFactor sends a number and expects it multiplied.
func askFactor(model string, factor int32, batched bool) func(asker, context.Context, *rand.Rand) error {
	return func(a asker, ctx context.Context, r *rand.Rand) error {
		value := r.Int32N(1 << 28)
		shape := []int64{1}
		if batched {
			shape = []int64{1, 1}
		}
		got, err := a.infer(ctx, numbers(question{model: model, shape: shape, text: r.IntN(2) == 0}, value))
		return want(got, err, factor*value)
	}
}

func askSleeps(a asker, ctx context.Context, r *rand.Rand) error {
	value := r.Int32N(100)
	got, err := a.infer(ctx, numbers(question{model: "sleeps", shape: []int64{1}}, value))
	return want(got, err, value)
}

// askSequence runs a sequence, and abandons it when a request is lost.
func askSequence(model string) func(asker, context.Context, *rand.Rand) error {
	return func(a asker, ctx context.Context, r *rand.Rand) error {
		sequence, length, sum := 1+r.Uint64N(1<<62), 1+r.IntN(8), int32(0)
		for i := range length {
			value := r.Int32N(1000)
			sum += value
			got, err := a.infer(ctx, numbers(question{
				model: model, shape: []int64{1, 1}, sequence: sequence, start: i == 0, end: i == length-1,
			}, value))
			if err := want(got, err, sum); err != nil {
				return err
			}
		}
		return nil
	}
}

func want(data []byte, err error, want int32) error {
	if err != nil {
		return err
	}
	got, err := number(data)
	if err == nil && got != want {
		err = fmt.Errorf("wrong answer: got %d, want %d", got, want)
	}
	return err
}

// httpAsker uses net/http, like real programs.
type httpAsker struct {
	client *http.Client
	base   string
}

func connectHTTP(k *soak) (asker, error) {
	return &httpAsker{&http.Client{Transport: rejecting{&http.Transport{}}}, "http://" + k.server.http}, nil
}

// rejecting is a transport for servers that reject connections. If the reply to a new connection
// comes before net/http has written the request, net/http drops the reply. The server sends such a
// reply only if it has too many connections.
type rejecting struct{ *http.Transport }

func (t rejecting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(r)
	if err != nil && strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)") {
		text := strings.NewReader("server has as many connections as it allows")
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: io.NopCloser(text), Request: r}, nil
	}
	return response, err
}

func (a *httpAsker) close() { a.client.CloseIdleConnections() }

func (a *httpAsker) infer(ctx context.Context, q question) ([]byte, error) {
	input := map[string]any{"name": "IN", "datatype": q.dataType, "shape": q.shape}
	request := map[string]any{"inputs": []any{input}}
	tail := q.data
	if q.text {
		value, err := number(q.data)
		if err != nil {
			return nil, err
		}
		input["data"], tail = []int32{value}, nil
	} else {
		input["parameters"] = map[string]any{"binary_data_size": len(q.data)}
		request["outputs"] = []any{map[string]any{"name": "OUT", "parameters": map[string]any{"binary_data": true}}}
	}
	if q.sequence != 0 {
		request["parameters"] = map[string]any{"sequence_id": q.sequence, "sequence_start": q.start, "sequence_end": q.end}
	}
	head, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/v2/models/"+q.model+"/infer", bytes.NewReader(append(head, tail...)))
	if err != nil {
		return nil, err
	}
	if !q.text {
		r.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(head)))
	}
	response, err := a.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		var e struct{ Error string }
		if err := json.Unmarshal(body, &e); err != nil {
			e.Error = string(body)
		}
		return nil, &answerError{response.StatusCode, e.Error}
	}
	if length := response.Header.Get("Inference-Header-Content-Length"); length != "" {
		n, err := strconv.Atoi(length)
		if err != nil || n > len(body) {
			return nil, fmt.Errorf("header length %q of a body of %d bytes", length, len(body))
		}
		return body[n:], nil
	}
	var answer struct{ Outputs []struct{ Data []int32 } }
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Outputs) != 1 || len(answer.Outputs[0].Data) != 1 {
		return nil, fmt.Errorf("unreadable answer %.200q: %w", body, err)
	}
	return numbers(question{}, answer.Outputs[0].Data[0]).data, nil
}

// grpcAsker uses grpc-go and the generated client.
type grpcAsker struct {
	conn   *grpc.ClientConn
	client grpcservice.GRPCInferenceServiceClient
}

func dialGRPC(k *soak, options ...grpc.DialOption) (*grpcAsker, error) {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
	conn, err := grpc.NewClient("passthrough:///"+k.server.grpc, options...)
	if err != nil {
		return nil, err
	}
	return &grpcAsker{conn, grpcservice.NewGRPCInferenceServiceClient(conn)}, nil
}

func connectGRPC(k *soak) (asker, error) { return dialGRPC(k) }

func (a *grpcAsker) close() { _ = a.conn.Close() }

func (q question) message() *kserve.ModelInferRequest {
	m := &kserve.ModelInferRequest{
		ModelName:        q.model,
		Inputs:           []*kserve.ModelInferRequest_InferInputTensor{{Name: "IN", Datatype: q.dataType, Shape: q.shape}},
		RawInputContents: [][]byte{q.data},
	}
	if q.sequence != 0 {
		flag := func(b bool) *kserve.InferParameter {
			return &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: b}}
		}
		m.Parameters = map[string]*kserve.InferParameter{
			"sequence_id":    {ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: int64(q.sequence)}},
			"sequence_start": flag(q.start), "sequence_end": flag(q.end),
		}
	}
	return m
}

func (a *grpcAsker) infer(ctx context.Context, q question) ([]byte, error) {
	response, err := a.client.ModelInfer(ctx, q.message())
	if err != nil {
		return nil, fromStatus(err)
	}
	if len(response.GetRawOutputContents()) != 1 {
		return nil, fmt.Errorf("%d outputs, want 1", len(response.GetRawOutputContents()))
	}
	return response.GetRawOutputContents()[0], nil
}

// fromStatus distinguishes error replies of the server from connection errors.
func fromStatus(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		// grpc-go itself creates this error if it has no connection, or has lost it. Without the
		// preface, the server had no room for the connection; after a failed write, it has closed it
		// for another one. In both cases it has seen no request.
		if strings.Contains(s.Message(), "error reading server preface") || strings.HasPrefix(s.Message(), "write tcp ") {
			return &answerError{http.StatusServiceUnavailable, s.Message()}
		}
		for _, own := range []string{"connection error", "error reading from server", "transport", "connection reset", "EOF", "closing"} {
			if strings.Contains(s.Message(), own) {
				return err
			}
		}
		return &answerError{http.StatusServiceUnavailable, s.Message()}
	case codes.ResourceExhausted:
		return &answerError{http.StatusServiceUnavailable, s.Message()}
	case codes.NotFound:
		return &answerError{http.StatusNotFound, s.Message()}
	case codes.Internal:
		return &answerError{http.StatusInternalServerError, s.Message()}
	case codes.InvalidArgument:
		return &answerError{http.StatusBadRequest, s.Message()}
	}
	return err
}

// connectStream sends several requests to the decoupled model on one stream.
func connectStream(k *soak) (func(context.Context, *rand.Rand) error, func(), error) {
	a, err := dialGRPC(k)
	if err != nil {
		return nil, nil, err
	}
	return a.askCounts, a.close, nil
}

func (a *grpcAsker) askCounts(ctx context.Context, r *rand.Rand) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := a.client.ModelStreamInfer(ctx)
	if err != nil {
		return fromStatus(err)
	}
	n := 1 + r.Int32N(200)
	q := numbers(question{model: "counts", shape: []int64{1}}, n)
	if err := stream.Send(q.message()); err != nil && err != io.EOF {
		return fromStatus(err)
	}
	if err := stream.CloseSend(); err != nil {
		return fromStatus(err)
	}
	for i := int32(0); ; i++ {
		message, err := stream.Recv()
		switch {
		case err == io.EOF && i == n:
			return nil
		case err == io.EOF:
			return fmt.Errorf("the stream ended after %d responses, want %d", i, n)
		case err != nil:
			return fromStatus(err)
		case message.GetErrorMessage() != "":
			return &answerError{streamCode(message.GetErrorMessage()), message.GetErrorMessage()}
		}
		raw := message.GetInferResponse().GetRawOutputContents()
		if len(raw) != 1 || len(raw[0]) != 4096 {
			return fmt.Errorf("response %d has %d outputs", i, len(raw))
		}
		if got := int32(binary.LittleEndian.Uint32(raw[0][4092:])); got != i {
			return fmt.Errorf("response %d says %d", i, got)
		}
	}
}

// streamCode guesses the code of an error in a stream, which has none.
func streamCode(text string) int {
	if strings.Contains(text, "memory") || strings.Contains(text, "try again") || strings.Contains(text, "not ready") || strings.Contains(text, "queue") {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
