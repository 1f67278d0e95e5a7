package stacked

import (
	"math"
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// split creates the response of each task from one of the model, which it releases.
func (g *group) split(r *infer.Response) []*infer.Response {
	defer r.Release()
	responses := make([]*infer.Response, len(g.tasks)) // bound: the batch
	if r.Err != nil {
		return share(r, g.fail(responses, r.Err, r.Final))
	}
	for i := range responses {
		// The parameters are shared: nobody changes those of a response.
		responses[i] = &infer.Response{Parameters: slices.Clip(r.Parameters), Empty: r.Empty, Final: r.Final}
	}
	for i := range r.Outputs {
		if err := g.scatter(&r.Outputs[i], responses); err != nil {
			for _, a := range responses {
				a.Release()
			}
			return g.fail(responses, err, r.Final)
		}
	}
	return share(r, responses)
}

// share lets the responses retain the memory of r's strings.
func share(r *infer.Response, responses []*infer.Response) []*infer.Response {
	if r.Held != nil {
		for i := range responses {
			r.Held.Retain()
			responses[i].Held = r.Held
		}
	}
	return responses
}

// fail creates an error response for each task.
func (g *group) fail(responses []*infer.Response, err *infer.Error, final bool) []*infer.Response {
	for i := range responses {
		own := *err
		responses[i] = &infer.Response{Err: &own, Final: final}
	}
	return responses
}

// scatter adds its part of an output to each response whose request wants it.
func (g *group) scatter(out *infer.Tensor, responses []*infer.Response) *infer.Error {
	pieces, err := g.pieces(out)
	defer func() {
		for i := range pieces {
			if pieces[i].Memory != out.Memory {
				pieces[i].Release()
			}
		}
	}()
	if err != nil {
		return err
	}
	for i, task := range g.tasks {
		if wanted := task.Request.Outputs; len(wanted) > 0 && !slices.Contains(wanted, out.Name) {
			continue
		}
		pieces[i].Retain()
		responses[i].Outputs = append(responses[i].Outputs, pieces[i]) // bound: the outputs of the model
	}
	return nil
}

// mismatch is the error for an output that does not fit the batch.
func (g *group) mismatch(out *infer.Tensor, format string, args ...any) *infer.Error {
	return infer.Errorf(infer.Internal, "output '%s' of model '%s' has shape %s, which does not fit a stacked batch: "+format,
		append([]any{out.Name, g.instance.plan.model, infer.ShapeString(out.Shape)}, args...)...) // bound: the arguments of one error
}

// pieces splits an output. The caller releases the Memory of pieces that were copied, even after an
// error; the others have no reference of their own.
func (g *group) pieces(out *infer.Tensor) ([]infer.Tensor, *infer.Error) {
	pieces := make([]infer.Tensor, len(g.tasks)) // bound: the batch
	for i := range pieces {
		pieces[i] = *out
	}
	if s := g.instance.plan.scatter[out.Name]; s != nil && g.tasks[0].Request.Input(s.source) != nil {
		if err := g.shapesOf(s, out, pieces); err != nil {
			return nil, err
		}
		if largest := g.largest(s); largest != nil && slices.Equal(out.Shape, largest) {
			return pieces, g.trim(out, pieces)
		}
	} else {
		if len(out.Shape) == 0 || out.Shape[0] != g.total {
			return nil, g.mismatch(out, "want %d in the first dimension", g.total)
		}
		for i := range pieces {
			shape := slices.Clone(out.Shape) // bound: the rank of a tensor
			shape[0] = g.rows[i]
			pieces[i].Shape = shape
		}
	}
	return pieces, g.cut(out, pieces)
}

// cut assigns consecutive bytes to the pieces.
func (g *group) cut(out *infer.Tensor, pieces []infer.Tensor) *infer.Error {
	rest := out.Data
	for i := range pieces {
		size, ok := infer.ByteSize(out.DataType, pieces[i].Shape)
		if out.DataType == infer.Bytes {
			var elements int64
			elements, ok = infer.Elements(pieces[i].Shape)
			scan := infer.ScanBytes(rest, int(min(elements, math.MaxInt)))
			ok = ok && int64(scan.Count) == elements
			size = int64(len(rest) - scan.Rest)
		}
		if !ok || size > int64(len(rest)) {
			return g.mismatch(out, "it has fewer elements than the %d requests are to get", len(pieces))
		}
		pieces[i].Data = rest[:size:size]
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return g.mismatch(out, "it has more elements than the %d requests are to get", len(pieces))
	}
	return nil
}

// shapesOf sets the shapes of the pieces according to batch_output.
func (g *group) shapesOf(s *scatter, out *infer.Tensor, pieces []infer.Tensor) *infer.Error {
	for i, task := range g.tasks {
		shape := fill(s.dims, g.rows[i], task.Request.Input(s.source).Shape)
		if shape == nil {
			return g.mismatch(out, "its batch_output says dimensions that input '%s' does not have", s.source)
		}
		if _, ok := infer.Elements(shape); !ok {
			return g.mismatch(out, "a request is to get %s", infer.ShapeString(shape))
		}
		pieces[i].Shape = shape
	}
	return nil
}

// largest returns the shape of an output whose items are as large as those of a padded input; nil
// without padding.
func (g *group) largest(s *scatter) []int64 {
	if shape := g.padded[s.source]; shape != nil {
		return fill(s.dims, g.total, shape)
	}
	return nil
}

// fill returns the shape of an output with this number of rows. Variable dimensions come from of.
func fill(dims []int64, rows int64, of []int64) []int64 {
	shape := append([]int64{rows}, dims...) // bound: the rank of a tensor
	for i := range dims {
		if shape[i+1] != -1 {
			continue
		}
		if i+1 >= len(of) {
			return nil
		}
		shape[i+1] = of[i+1]
	}
	return shape
}

// trim removes the padding from an output. Padded pieces are copied.
func (g *group) trim(out *infer.Tensor, pieces []infer.Tensor) *infer.Error {
	rest, width := out.Data, int64(out.DataType.Size())
	take := func(n int64) []byte {
		size := n * width
		if out.DataType == infer.Bytes {
			size = int64(stringBytes(rest, n))
		}
		size = min(size, int64(len(rest)))
		taken := rest[:size:size]
		rest = rest[size:]
		return taken
	}
	items, ok := infer.Elements(out.Shape[1:])
	size, sized := infer.ByteSize(out.DataType, out.Shape)
	if !ok || sized && size != int64(len(out.Data)) {
		return g.mismatch(out, "it has %d bytes", len(out.Data))
	}
	for i := range pieces {
		p := &pieces[i]
		if slices.Equal(p.Shape[1:], out.Shape[1:]) {
			p.Data = take(p.Shape[0] * items)
			continue
		}
		from, size := rest, 0
		each := func(visit func([]byte)) {
			rest = from
			for range p.Shape[0] {
				eachRun(out.Shape[1:], p.Shape[1:], func(inside bool, n int64) {
					if taken := take(n); inside {
						visit(taken)
					}
				})
			}
		}
		each(func(taken []byte) { size += len(taken) })
		own, memory, err := g.instance.lend(size)
		if err != nil {
			return infer.Errorf(infer.Unavailable, "output '%s' of model '%s' cannot be split for %d requests: %v", out.Name, g.instance.plan.model, len(g.tasks), err)
		}
		p.Data, p.Memory = own, memory
		each(func(taken []byte) { own = own[copy(own, taken):] })
	}
	return nil
}
