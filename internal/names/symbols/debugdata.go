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

// decompress decompresses the first block of an xz file, which is all of what xz writes with one
// thread. The checksums are not looked at: symbols are checked anyhow. The format is that of
// xz-file-format.txt 1.2.1, sections 2.1.1 and 3.1:
//
//	offset  size  field
//	     0     6  magic
//	     6     6  flags of the stream, CRC32
//	    12     1  size of the block's header, in units of 4 bytes, of which it is one less
//	    13     1  flags: 0x03 number of filters less one, 0x40 and 0x80 sizes are present
//	    14     …  sizes, as varints
//	     …     3  filter LZMA2 (0x21), size of its properties (1), size of the dictionary
//	     …     …  padding, CRC32, then the data
func decompress(r *bufio.Reader, most int) ([]byte, error) {
	const magic, streamHeader, lzma2 = "\xfd7zXZ\x00", 12, 0x21
	head := make([]byte, streamHeader+1)
	if _, err := io.ReadFull(r, head); err != nil || string(head[:len(magic)]) != magic {
		return nil, errDebugData
	}
	block := make([]byte, 4*(int(head[streamHeader])+1)-1)
	if _, err := io.ReadFull(r, block); err != nil || head[streamHeader] == 0 || block[0]&0x03 != 0 {
		return nil, errDebugData
	}
	filter := block[1:]
	for _, flag := range []byte{0x40, 0x80} {
		if block[0]&flag != 0 {
			_, n := binary.Uvarint(filter)
			filter = filter[max(n, 0):]
		}
	}
	if len(filter) < 3 || filter[0] != lzma2 || filter[1] != 1 || filter[2] > 40 {
		return nil, errDebugData
	}
	dictionary := uint64(2|filter[2]&1) << (filter[2]/2 + 11)
	// Nothing is farther back than its end.
	config := lzma.Reader2Config{DictCap: int(max(min(dictionary, uint64(most)), lzma.MinDictCap))}
	reader, err := config.NewReader2(r)
	if err != nil {
		return nil, err
	}
	contents, err := io.ReadAll(io.LimitReader(reader, int64(most)+1))
	if err == nil && len(contents) > most {
		err = fmt.Errorf("%w: more than %d bytes", elfsym.ErrLimit, most)
	}
	return contents, err
}
