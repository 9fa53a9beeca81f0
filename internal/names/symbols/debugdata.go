package symbols

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"

	"correlator/elfsym"
)

// maxDebugData bounds what .gnu_debugdata may be decompressed to: the symbols of 150,000 functions, a
// second of work. libjvm.so has 5 MB.
const maxDebugData = 16 << 20

// debugBlocks is how many blocks are read, each of which takes memory of its own; xz makes them of 24 MiB.
const debugBlocks = 64

var errDebugData = errors.New("unexpected contents of .gnu_debugdata")

// ReadDebugData reads the symbols that a file has in .gnu_debugdata: as Fedora, RHEL and others build
// all their files.
func ReadDebugData(section io.Reader) (*elfsym.SymbolTables, error) {
	contents, err := decompress(bufio.NewReader(section), maxDebugData)
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	return elfsym.ReadSymbolTables(bytes.NewReader(contents), int64(len(contents)))
}

// decompress decompresses an xz file, of all blocks and streams. Filters but LZMA2 are unexpected, and checksums are
// not looked at: symbols are checked anyhow. The format is that of xz-file-format.txt 1.2.1, sections 2 to 4:
//
//	size  field
//	   6  magic
//	   6  flags of the stream, the second of which is the kind of check; CRC32
//	      blocks:
//	   1  size of the block's header, in units of 4 bytes, of which it is one less
//	   1  flags: 0x03 number of filters less one, 0x40 and 0x80 sizes are present
//	   …  sizes, as varints
//	   3  filter LZMA2 (0x21), size of its properties (1), size of the dictionary
//	   …  padding, CRC32
//	   …  data, padding to 4 bytes, check
//	      index:
//	   1  0
//	   …  number of records, each of two varints, all varints
//	   …  padding to 4 bytes, CRC32
//	  12  footer, and perhaps padding of 0 before another stream
func decompress(r *bufio.Reader, most int) ([]byte, error) {
	x := xzReader{r: r, most: most}
	for {
		if err := x.stream(); err != nil {
			return x.contents, err
		}
		for {
			switch b, err := x.ReadByte(); {
			case errors.Is(err, io.EOF):
				return x.contents, nil
			case err != nil:
				return x.contents, err
			case b != 0:
				x.n--
				if err := r.UnreadByte(); err != nil {
					return x.contents, err
				}
			default:
				continue
			}
			break
		}
	}
}

// xzReader reads an xz file, of hardly more bytes than it may be decompressed to: padding and the index may have any
// size.
type xzReader struct {
	r        *bufio.Reader
	n        int // bytes that were read
	blocks   int
	most     int
	contents []byte
}

// Read implements io.Reader, and ReadByte io.ByteReader, by which no more is read of data than belongs to it.
func (x *xzReader) Read(b []byte) (int, error) {
	n, err := x.r.Read(b)
	return n, x.count(n, err)
}

func (x *xzReader) ReadByte() (byte, error) {
	b, err := x.r.ReadByte()
	if err == nil {
		err = x.count(1, nil)
	}
	return b, err
}

// count counts bytes that were read.
func (x *xzReader) count(n int, err error) error {
	packed := x.most + x.most/8 + 1<<16 // what cannot be compressed takes a thousandth more
	if x.n += n; err == nil && x.n > packed {
		err = fmt.Errorf("%w: more than %d bytes compressed", elfsym.ErrLimit, packed)
	}
	return err
}

func (x *xzReader) skip(n int) error {
	_, err := io.CopyN(io.Discard, x, int64(n))
	return err
}

// align skips what is left to 4 bytes.
func (x *xzReader) align(more int) error { return x.skip(-x.n&3 + more) }

// stream reads a stream, to which all before is aligned.
func (x *xzReader) stream() error {
	const magic, streamHeader, footer, crc = "\xfd7zXZ\x00", 12, 12, 4
	var head [streamHeader]byte
	if _, err := io.ReadFull(x, head[:]); err != nil || string(head[:len(magic)]) != magic {
		return errDebugData
	}
	check := head[len(magic)+1] & 0xf // 0: none, then three kinds of each size
	checkBytes := 0
	if check > 0 {
		checkBytes = 4 << ((check - 1) / 3)
	}
	for {
		size, err := x.ReadByte()
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		if x.blocks++; x.blocks > debugBlocks {
			return fmt.Errorf("%w: more than %d blocks", elfsym.ErrLimit, debugBlocks)
		}
		if err := x.block(4*int(size) + 3); err != nil {
			return err
		}
		if err := x.align(checkBytes); err != nil {
			return err
		}
	}
	records, err := binary.ReadUvarint(x)
	for range 2 * records {
		if err == nil {
			_, err = binary.ReadUvarint(x)
		}
		if err != nil {
			return err
		}
	}
	return x.align(crc + footer)
}

// block reads a block with so many bytes of the header left.
func (x *xzReader) block(left int) error {
	const lzma2 = 0x21
	head := make([]byte, left)
	if _, err := io.ReadFull(x, head); err != nil || head[0]&0x03 != 0 {
		return errDebugData
	}
	filter := head[1:]
	for _, flag := range []byte{0x40, 0x80} {
		if head[0]&flag != 0 {
			_, n := binary.Uvarint(filter)
			filter = filter[max(n, 0):]
		}
	}
	if len(filter) < 3 || filter[0] != lzma2 || filter[1] != 1 || filter[2] > 40 {
		return errDebugData
	}
	dictionary := uint64(2|filter[2]&1) << (filter[2]/2 + 11)
	// Nothing is farther back than its end.
	config := lzma.Reader2Config{DictCap: int(max(min(dictionary, uint64(x.most)), lzma.MinDictCap))}
	reader, err := config.NewReader2(x)
	if err != nil {
		return err
	}
	part, err := io.ReadAll(io.LimitReader(reader, int64(x.most-len(x.contents))+1))
	x.contents = append(x.contents, part...)
	if err == nil && len(x.contents) > x.most {
		err = fmt.Errorf("%w: more than %d bytes", elfsym.ErrLimit, x.most)
	}
	return err
}
