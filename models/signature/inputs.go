package signature

import (
	"context"
	"math"
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// batchNote follows the text about a shape when the config has an implicit batch dimension.
const batchNote = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."

// checkInput checks one input's type, shape and size, and reshapes it. shown is the name in texts
// about the size, if it differs from the input's own.
func (s *Model) checkInput(ctx context.Context, r *infer.Request, in *infer.Tensor, shown string) error {
	spec := s.byInput[in.Name]
	if shown == "" {
		shown = in.Name
	}
	if in.DataType != spec.dataType {
		return refuse("%sinference input '%s' data-type is '%s', but model '%s' expects '%s'", r.LogPrefix(), in.Name, in.DataType, s.model, spec.dataType)
	}
	item := in.Shape
	if s.maxBatch > 0 {
		item = in.Shape[1:]
	}
	unspecified := func() error {
		return refuse("%sAll input dimensions should be specified for input '%s' for model '%s', got %s", r.LogPrefix(), in.Name, s.model, infer.ShapeString(in.Shape))
	}
	if len(item) == len(spec.dims) && slices.Contains(item, -1) {
		return unspecified()
	}
	if !infer.ShapeFits(item, spec.dims) {
		expected, note := spec.dims, ""
		if s.maxBatch > 0 {
			expected, note = append([]int64{-1}, spec.dims...), batchNote // bound: the config
		}
		return refuse("%sunexpected shape for input '%s' for model '%s'. Expected %s, got %s. %s", r.LogPrefix(), in.Name, s.model, infer.ShapeString(expected), infer.ShapeString(in.Shape), note)
	}
	if r.BatchSize == -1 { // of models without a batch dimension it is 0
		return unspecified()
	}
	if err := s.checkSize(ctx, r, in, item, shown); err != nil {
		return err
	}
	if spec.reshaped {
		in.Shape = reshape(in.Shape, spec.dims, spec.reshape, s.maxBatch > 0)
	}
	return nil
}

// checkSize compares the number of bytes with type and shape.
func (s *Model) checkSize(ctx context.Context, r *infer.Request, in *infer.Tensor, item []int64, shown string) error {
	for _, d := range in.Shape {
		if d < 0 {
			return refuse("%stensor '%s' contains an invalid dimension %s", r.LogPrefix(), shown, infer.ShapeString(in.Shape))
		}
	}
	elements, ok := infer.Elements(item)
	// For a batch of 0 the size of one item is expected, so that the error is
	// the one about batches and not the one about bytes.
	if ok && s.maxBatch > 0 && r.BatchSize > 1 {
		if elements > math.MaxInt64/r.BatchSize {
			ok = false
		}
		elements *= r.BatchSize
	}
	if in.DataType == infer.Bytes {
		if !ok {
			return refuse("%selement count for tensor '%s' exceeds maximum size of 9223372036854775807", r.LogPrefix(), shown)
		}
		return s.checkStrings(ctx, r, in, elements)
	}
	size := int64(in.DataType.Size())
	if !ok || elements > math.MaxInt64/size {
		return refuse("%sbyte size for tensor '%s' exceeds maximum size of 9223372036854775807", r.LogPrefix(), shown)
	}
	if n := in.Size(); n != elements*size {
		return refuse("%sinput byte size mismatch for input '%s' for model '%s'. Expected %d, got %d", r.LogPrefix(), shown, s.model, elements*size, n)
	}
	return nil
}

// checkStrings reads the elements of a BYTES input. Bytes that a client could change later are
// copied first.
func (s *Model) checkStrings(ctx context.Context, r *infer.Request, in *infer.Tensor, want int64) error {
	if err := in.Localize(ctx); err != nil {
		return err
	}
	scan := infer.ScanBytes(in.Data, int(min(want+1, math.MaxInt)))
	count := int64(scan.Count)
	switch {
	case count > want:
		return refuse("%sunexpected number of string elements %d for inference input '%s' for model '%s', expecting %d", r.LogPrefix(), want+1, in.Name, s.model, want)
	case scan.Rest == 0 && count == want:
		return nil
	case scan.Rest >= 4 && count == want:
		// An element too many, cut off.
		return refuse("%sunexpected number of string elements %d for inference input '%s' for model '%s', expecting %d", r.LogPrefix(), want+1, in.Name, s.model, want)
	case scan.Rest >= 4 && count+1 < want: // the truncated element counts
		return s.tooFewStrings(r, in, want, count+1)
	case scan.Rest >= 4:
		return &BackendRefusal{infer.Errorf(infer.InvalidArg, "incomplete string data for inference input '%s', expecting string of length %d but only %d bytes available",
			in.Name, scan.Want, scan.Rest-4)}
	case scan.Rest > 0:
		return refuse("%sincomplete string length indicator for inference input '%s' for model '%s', expecting 4 bytes but only %d bytes available. Please make sure the string length indicator is in one buffer.", r.LogPrefix(), in.Name, s.model, scan.Rest)
	}
	return s.tooFewStrings(r, in, want, count)
}

func (s *Model) tooFewStrings(r *infer.Request, in *infer.Tensor, want, count int64) error {
	return refuse("%sexpected %d string elements for inference input '%s' for model '%s', got %d", r.LogPrefix(), want, in.Name, s.model, count)
}
