/*
** Abbreviated keys: 64 bits of a record's first field, in the order of sqlite3VdbeRecordCompare().
** A search needs SQLite's comparison only where they are equal. The first two bits give the type of
** the field (NULL, a number, text, a BLOB, in this order). The others give its beginning.
*/

#define GLUE_ABBREVIATED 1  /* A kind that is not 0 */
#define GLUE_DESCENDING  2  /* The order of the first field is turned around */
#define GLUE_MEMCMP      4  /* Text is in the order of its bytes */

#define GLUE_CLASS(c) ((u64)(c)<<62)
#define GLUE_NUMBER   GLUE_CLASS(1)
#define GLUE_TEXT     GLUE_CLASS(2)
#define GLUE_BLOB     GLUE_CLASS(3)

static unsigned int glueAbbreviation(const KeyInfo *pKeyInfo){
  u8 flags = pKeyInfo->aSortFlags[0];
  if( flags & KEYINFO_ORDER_BIGNULL ) return 0;
  return GLUE_ABBREVIATED | (flags & KEYINFO_ORDER_DESC ? GLUE_DESCENDING : 0) | (pKeyInfo->aColl[0] ? 0 : GLUE_MEMCMP);
}

/* Two integers may share one: rounded, they stay in order, also next to reals. */
static u64 glueOfReal(double r){
  u64 bits;
  if( r!=r ) return 0;  /* SQLite reads a NaN as NULL. */
  r += 0.0;             /* -0.0 is 0.0. */
  memcpy(&bits, &r, sizeof(bits));
  bits = bits>>63 ? ~bits : bits | ((u64)1<<63);
  return GLUE_NUMBER | bits>>2;
}

/* SQLite's own sqlite3Get8byte() is newer than the oldest SQLite that this supports. */
static u64 glueGet8byte(const u8 *a){
  return (u64)sqlite3Get4byte(a)<<32 | sqlite3Get4byte(&a[4]);
}

/* Missing bytes of the eight count as zeros. */
static u64 glueOfBytes(const u8 *a, u32 n){
  u64 bits = 0;
  u32 i;
  for(i=0; i<8; i++) bits = bits<<8 | (i<n ? a[i] : 0);
  return bits>>2;
}

static u64 glueInOrder(unsigned int kind, u64 number){
  return kind & GLUE_DESCENDING ? ~number : number;
}

/* Of a stored record; readable bytes follow it. */
static u64 glueOfRecord(unsigned int kind, const u8 *a, u32 n){
  static const u8 aShift[] = {0, 56, 48, 40, 32, 16, 0};
  u32 nHeader, type;
  u32 i = getVarint32(a, nHeader);
  getVarint32NR(&a[i], type);
  if( nHeader>n || type==0 ) return 0;
  a += nHeader;
  if( type<=6 ) return glueOfReal((double)((i64)glueGet8byte(a)>>aShift[type]));
  if( type==7 ){
    u64 bits = glueGet8byte(a);
    double r;
    memcpy(&r, &bits, sizeof(r));
    return glueOfReal(r);
  }
  if( type<=9 ) return glueOfReal((double)(type-8));
  if( type<12 ) return 0;
  n = MIN(n-nHeader, (type-12)/2);
  if( (type & 1)==0 ) return GLUE_BLOB | glueOfBytes(a, n);
  return GLUE_TEXT | (kind & GLUE_MEMCMP ? glueOfBytes(a, n) : 0);
}

static void glueAbbreviate(
  unsigned int kind,
  const unsigned char *aByte,
  const EngineSpan *aRecord,
  unsigned int nRecord,
  sqlite3_uint64 *aNumber
){
  unsigned int i;
  for(i=0; i<nRecord; i++){
    aNumber[i] = glueInOrder(kind, glueOfRecord(kind, &aByte[aRecord[i].offset], aRecord[i].size));
  }
}

/* Of the first sought field, read as sqlite3VdbeRecordCompareWithSkip() reads it. */
static u64 glueOfSought(unsigned int kind, const Mem *pMem){
  u64 number = 0;
  if( pMem->flags & (MEM_Int|MEM_IntReal) ){
    number = glueOfReal((double)pMem->u.i);
  }else if( pMem->flags & MEM_Real ){
    number = glueOfReal(pMem->u.r);
  }else if( pMem->flags & MEM_Str ){
    number = GLUE_TEXT | (kind & GLUE_MEMCMP ? glueOfBytes((u8*)pMem->z, (u32)pMem->n) : 0);
  }else if( pMem->flags & MEM_Blob ){
    number = GLUE_BLOB | glueOfBytes((u8*)pMem->z, (u32)pMem->n);
  }
  return glueInOrder(kind, number);
}
